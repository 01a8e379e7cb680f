"""The two brokers under test, started from the same server.properties: only ports and data directory differ, as they
must when both run at once.

The processes themselves are those of the tests (`tests/support`). For measuring, Apache Kafka gets the JVM settings of
its own start script instead of the quick ones of the tests. A JVM starts with all cores, so that it sizes its collector
and compiler for the machine, and is pinned only when a measurement says so.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from support.broker import Pylogd as PylogdDaemon
from support.daemon import HOST, Daemon
from support.jvm import classpath, java
from support.kafka import ApacheKafka
from support.paths import SUPPORT
from support.wire import broker_count

from bench import machine

# What kafka-server-start.sh and kafka-run-class.sh set.
JVM_OPTIONS = [
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
]
# Topics are only created on purpose; everything else is the default or what the tests set.
PROPERTIES = {"auto.create.topics.enable": "false"}


class Measured(Daemon):
    """What the bench asks of a broker process beyond starting and stopping it."""

    def wait_until_ready(self) -> None:
        """As for the tests, but asked often enough to time a start of some ten milliseconds."""
        deadline = time.monotonic() + 120
        while True:
            try:
                if broker_count(HOST, self.port) > 0:
                    return
            except OSError:
                pass
            if not self.running or time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} did not start\n{self.log_tail()}")
            time.sleep(0.002)

    def timed_start(self) -> float:
        """Starts on a data directory that was prepared before; the seconds until the first answer."""
        self.prepare()
        started = time.perf_counter()
        self.start()
        return time.perf_counter() - started

    def timed_stop(self) -> float:
        started = time.perf_counter()
        self.stop()
        return time.perf_counter() - started

    def cpu_seconds(self) -> float:
        return machine.cpu_seconds(self.pid)

    def resident_mb(self) -> float:
        return machine.resident_mb(self.pid)


class Kafka(Measured, ApacheKafka):
    label = "Kafka"

    def command(self) -> list[str]:
        log4j = f"-Dlog4j2.configurationFile={SUPPORT / 'java' / 'log4j2.properties'}"
        return [
            java(),
            *JVM_OPTIONS,
            log4j,
            "-cp",
            classpath(),
            "kafka.Kafka",
            str(self.directory / "server.properties"),
        ]


class Pylogd(Measured, PylogdDaemon):
    label = "pylogd"

    def environment(self) -> dict[str, str]:
        """With compiled bytecode, as an installed package has it, whatever the developer's shell says."""
        environment = super().environment()
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        return environment


Broker = Kafka | Pylogd
KINDS: dict[str, type[Kafka] | type[Pylogd]] = {"kafka": Kafka, "pylogd": Pylogd}


@contextmanager
def running(kind: str, directory: Path, properties: dict[str, str] | None = None) -> Iterator[Broker]:
    """A started broker; stopped and its files removed afterwards."""
    broker = KINDS[kind](directory, {**PROPERTIES, **(properties or {})})
    try:
        broker.start()
        yield broker
    finally:
        if broker.running:
            broker.terminate()
        shutil.rmtree(directory, ignore_errors=True)
