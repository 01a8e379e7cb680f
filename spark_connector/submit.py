"""`pylogd spark submit`: spark-submit with the Kafka source that matches, everything else passed through."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import NoReturn

from pylogd.spark_connector.distribution import distribution, kafka_jars
from pylogd.spark_connector.java import java_home
from pylogd.spark_connector.setup_errors import SetupError

USAGE = """\
usage: pylogd spark submit [OPTION ...] JOB [ARGUMENT ...]

Runs JOB (a Python file or a jar) with spark-submit and the Kafka source that matches the installed Spark.
Every option of spark-submit is passed on: --master, --conf KEY=VALUE, --name, --py-files, ...
"""
# Options of spark-submit that take no value; all others take one, in the next argument or after "=".
FLAGS = {"--supervise", "--verbose", "-v"}
_JARS = {"--jars", "spark.jars"}
_PACKAGES = {"--packages", "spark.jars.packages"}


def main(arguments: list[str]) -> int:
    """`pylogd spark submit`; returns only if there is nothing to run."""
    options, job = split(arguments)
    if "--help" in options or "-h" in options:
        print(USAGE)
        return 0
    if not job:
        print(USAGE, file=sys.stderr)
        return 2
    submit(options, job)


def submit(options: list[str], job: list[str]) -> NoReturn:
    """Becomes spark-submit: signals and the exit code are its own."""
    spark = distribution()
    spark.check_packages(packages(options))
    java = spark.java()
    jars = [str(jar) for jar in kafka_jars(spark, java)]
    environment = {**os.environ, "JAVA_HOME": str(java_home(java)), "SPARK_HOME": str(spark.home)}
    # A virtual environment that is not activated has no python3 on the PATH.
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    program = str(spark.home / "bin" / "spark-submit")
    sys.stdout.flush()
    try:
        os.execve(program, [program, *with_jars(options, jars), *job], environment)
    except OSError as error:
        raise SetupError(f"{program}: {error.strerror}") from None


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The options of spark-submit, and the job with its own arguments."""
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        if arguments[at] in ("--help", "-h"):
            return arguments[: at + 1], []
        at += 1 if arguments[at] in FLAGS or "=" in arguments[at] else 2
    return arguments[:at], arguments[at:]


def with_jars(options: list[str], jars: list[str]) -> list[str]:
    """The options with our jars before the user's own: of two --jars, or --jars and spark.jars, only one counts."""
    pairs = list(_pairs(options))
    own = [value for name, value in pairs if name in _JARS and value]
    rest = [part for name, value in pairs if name not in _JARS for part in _argument(name, value)]
    every = [*jars, *own]
    return ["--jars", ",".join(every), *rest] if every else rest


def packages(options: list[str]) -> str:
    """What the options ask Spark to download."""
    return ",".join(value for name, value in _pairs(options) if name in _PACKAGES and value)


def _pairs(options: list[str]) -> Iterator[tuple[str, str | None]]:
    """Each option with its value; a setting of --conf is called by its own name."""
    rest = iter(options)
    for option in rest:
        name, equals, inline = option.partition("=")
        value = None if name in FLAGS else inline if equals else next(rest, "")
        if name in ("--conf", "-c") and value is not None:
            name, _, value = value.partition("=")
        yield name, value


def _argument(name: str, value: str | None) -> list[str]:
    if value is None:
        return [name]
    return [name, value] if name.startswith("-") else ["--conf", f"{name}={value}"]
