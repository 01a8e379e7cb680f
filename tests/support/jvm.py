"""Java for the tests: finds a JDK, resolves Kafka's jars once, and keeps one warm JVM that runs Kafka's tools.

Without Java the tests that need it are skipped with the reason; where CI=true they fail, so that a build server
without Java is noticed.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import selectors
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest
from pylogd.spark_connector.java import find_java
from pylogd.spark_connector.maven import Artifact, ResolutionError, resolve
from pylogd.spark_connector.setup_errors import SetupError

from support.paths import CACHE, SUPPORT, cache_lock

KAFKA_VERSION = "4.3.1"
JAVA_MIN = 17
KAFKA_ARTIFACTS = [
    *(
        Artifact("org.apache.kafka", name, KAFKA_VERSION)
        for name in ("kafka_2.13", "kafka-tools", "kafka-streams", "connect-runtime", "connect-file", "kafka-shell")
    ),
    # Kafka 4.3 logs through slf4j 1.7.
    Artifact("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3"),
]


def unavailable(reason: str) -> NoReturn:
    """Skips the test, except on a build server."""
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def java() -> str:
    try:
        return str(find_java(JAVA_MIN))
    except SetupError as error:
        unavailable(str(error))


@functools.cache
def _kafka_jars() -> list[Path] | str:
    try:
        return resolve(f"kafka-{KAFKA_VERSION}", KAFKA_ARTIFACTS, Path(java()), cache=CACHE)
    except ResolutionError as error:
        return str(error)


def kafka_jars() -> list[Path]:
    """All jars of Apache Kafka and what they need."""
    jars = _kafka_jars()
    if isinstance(jars, str):
        unavailable(jars)
    return jars


def kafka_jar(artifact: str) -> Path:
    """One of Kafka's own jars, such as `kafka-clients`."""
    return next(jar for jar in kafka_jars() if jar.name == f"{artifact}-{KAFKA_VERSION}.jar")


def classpath() -> str:
    return os.pathsep.join(map(str, kafka_jars()))


def tool_command(main: str, *args: str, options: Sequence[str] = ("-Xmx256m",)) -> list[str]:
    """The command line of one of Kafka's classes in a JVM of its own."""
    log4j = f"-Dlog4j2.configurationFile={SUPPORT / 'java' / 'log4j2.properties'}"
    quick = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Dfile.encoding=UTF-8"]
    return [java(), *quick, *options, log4j, "-cp", classpath(), main, *args]


def compiled(source: str) -> Path:
    """The folder with the classes of one of our Java files, compiled against Kafka's jars when it changed."""
    path = SUPPORT / "java" / source
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    javac = Path(java()).resolve().parent / "javac"
    if not javac.exists():
        unavailable("needs a JDK: the Java found has no compiler")
    with cache_lock(f"java-{path.stem}-{digest}") as folder:
        if not (folder / "done").exists():
            command = [str(javac), "-nowarn", "-cp", classpath(), "-d", str(folder), str(path)]
            subprocess.run(command, check=True, timeout=300)
            (folder / "done").touch()
        return folder


#: Clients that may idle in the tools' JVM before it is replaced.
CLIENTS_MAX = 10


@dataclass(frozen=True)
class ToolResult:
    code: int
    stdout: str
    stderr: str
    timed_out: bool
    #: That this tool and those before it left behind in the JVM.
    clients: int

    def __str__(self) -> str:
        return f"exit code {self.code}{' (timed out)' if self.timed_out else ''}\n{self.stdout}\n{self.stderr}"


class ToolHost:
    """The warm JVM. One tool at a time; a host that does not answer, or is full of clients that tools left behind, is
    killed, and the next call starts another."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the host

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            classes = compiled("ToolHost.java")
            command = tool_command("ToolHost")
            command[command.index("-cp") + 1] += os.pathsep + str(classes)
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, bufsize=0
            )
        return self._process

    def run(self, main: str, *args: str, stdin: str = "", timeout_s: float = 60) -> ToolResult:
        process = self._started()
        assert process.stdin is not None
        command = {"main": main, "args": list(args), "stdin": stdin, "timeout_ms": int(timeout_s * 1000)}
        process.stdin.write(json.dumps(command).encode() + b"\n")
        result = ToolResult(**json.loads(self._reply(process, timeout_s + 60)))
        if result.clients > CLIENTS_MAX:
            self.stop()
        return result

    def _reply(self, process: subprocess.Popen[bytes], timeout_s: float) -> bytes:
        assert process.stdout is not None
        reply = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not reply.endswith(b"\n"):
                if not selector.select(timeout_s):
                    self.stop()
                    raise TimeoutError("the tool JVM did not answer")
                chunk = process.stdout.read(1 << 20)
                if not chunk:
                    self._log.seek(0)
                    raise RuntimeError(f"the tool JVM died: {self._log.read()[-4000:].decode(errors='replace')}")
                reply += chunk
        return bytes(reply)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
