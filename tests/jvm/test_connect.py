"""Kafka Connect standalone with the file source and the file sink: a file copied through a topic while the worker is
stopped, killed and started again misses no line."""

from __future__ import annotations

import itertools
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.admin import Admin
from support.daemon import Daemon
from support.jvm import tool_command
from support.ports import free_ports
from support.scale import scaled
from support.wait import eventually

pytestmark = pytest.mark.jvm
LINES = scaled(test=5_000, soak=200_000)
ROUNDS = scaled(test=1, soak=5)


class Worker:
    """A Connect worker that copies the lines of `source` through a topic into `target`."""

    def __init__(self, folder: Path, bootstrap: str, topic: str) -> None:
        self.source, self.target, self.log = folder / "source.txt", folder / "target.txt", folder / "connect.log"
        self.source.touch()
        self.target.touch()
        self._folder, self._count = folder, itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None
        worker = {
            "bootstrap.servers": bootstrap,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "offset.storage.file.filename": str(folder / "offsets"),
            "offset.flush.interval.ms": "500",
            "listeners": f"http://127.0.0.1:{free_ports(1)[0]}",
            "plugin.discovery": "service_load",
            # A worker that was killed holds its partitions until its session ends.
            "consumer.session.timeout.ms": "6000",
            "consumer.heartbeat.interval.ms": "500",
        }
        source = {
            "name": f"{topic}.source",
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "tasks.max": "1",
            "file": str(self.source),
            "topic": topic,
            # More than it ever finds: what a full batch leaves in its buffer it gives only when the file grows again.
            "batch.size": "10000000",
        }
        sink = {
            "name": f"{topic}.sink",
            "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
            "tasks.max": "1",
            "file": str(self.target),
            "topics": topic,
        }
        files = [self._write("worker", worker), self._write("source", source), self._write("sink", sink)]
        self._command = tool_command("org.apache.kafka.connect.cli.ConnectStandalone", *files)

    def _write(self, name: str, properties: dict[str, str]) -> str:
        path = self._folder / f"{name}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        return str(path)

    def start(self) -> None:
        with open(self.log, "ab") as out:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        # 128 + SIGTERM: the JVM's hooks stopped the worker.
        assert self._process.wait(60) == 143, self.log.read_text()[-5000:]

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def append(self, count: int) -> None:
        """Numbered lines; the numbers go on where the last call ended."""
        with open(self.source, "a") as out:
            out.writelines(f"<{number:08}>\n" for number in itertools.islice(self._count, count))

    def copied(self) -> list[int]:
        """The numbers in the target. A worker killed while it wrote may leave a torn line, which the next continues."""
        return [int(number) for number in re.findall(r"<(\d{8})>", self.target.read_text())]

    def copied_up_to(self, number: int) -> None:
        def reached() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, self.log.read_text()[-5000:]
            return max(self.copied(), default=0) >= number

        eventually(reached, timeout_s=120, what=f"until line {number} is copied, see {self.log}")


@pytest.fixture
def worker(broker: Daemon, tmp_path: Path, topic_name: str) -> Iterator[Worker]:
    Admin(broker.bootstrap).create(topic_name)
    worker = Worker(tmp_path, broker.bootstrap, topic_name)
    yield worker
    worker.kill()


def test_a_file_is_copied_through_stops_and_kills(worker: Worker) -> None:
    written = 0

    def write() -> None:
        nonlocal written
        worker.append(LINES)
        written += LINES

    write()
    for _ in range(ROUNDS):
        worker.start()
        worker.copied_up_to(written - LINES + 1)
        worker.stop()
        # A worker that was stopped has committed what it read and what it wrote: nothing is lost, nothing comes twice.
        assert worker.copied() == list(range(1, len(worker.copied()) + 1))
        write()
    worker.start()
    worker.copied_up_to(written)
    assert worker.copied() == list(range(1, written + 1))

    for _ in range(ROUNDS):
        write()
        worker.copied_up_to(written - LINES + 1)
        worker.kill()
        write()
        worker.start()
        worker.copied_up_to(written)
    # One that was killed copies again what it had not committed, and skips nothing.
    first_seen = list(dict.fromkeys(worker.copied()))
    assert first_seen == list(range(1, written + 1))
