"""`pylogd dev`: three brokers in one command, one of them killed, all of them stopped with one signal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pylogd.cli import dev
from support.ports import free_ports
from support.wait import eventually


class DevCluster:
    """The command as a person runs it; its output is read as it comes."""

    def __init__(self, folder: Path, *options: str) -> None:
        command = [sys.executable, "-P", "-m", "pylogd.cli.main", "dev", *options]
        self.process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)

    @property
    def text(self) -> str:
        return "".join(self.lines)

    def bootstrap(self) -> str:
        eventually(lambda: "is ready: bootstrap.servers=" in self.text, timeout_s=90)
        found = re.search(r"is ready: bootstrap\.servers=(\S+)", self.text)
        assert found is not None
        return found[1]

    def node_pid(self, number: int) -> int:
        found = re.search(rf"^\[{number}\] process (\d+) ", self.text, re.MULTILINE)
        assert found is not None
        return int(found[1])

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(60)
        self._reader.join(10)
        return code


@pytest.fixture
def running(tmp_path: Path) -> Iterator[DevCluster]:
    cluster = DevCluster(tmp_path, "--brokers", "3", "--port", "0", "--data", "somewhere")
    yield cluster
    if cluster.process.poll() is None:
        cluster.process.send_signal(signal.SIGTERM)
        cluster.process.send_signal(signal.SIGTERM)
        cluster.process.wait(30)


def test_three_brokers_survive_the_loss_of_one(running: DevCluster) -> None:
    servers = running.bootstrap()
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic("t", 1, 3)])["t"].result(30)
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "enable.idempotence": True})

    def produce(first: int, last: int) -> None:
        for n in range(first, last):
            producer.produce("t", str(n).encode())
        assert producer.flush(60) == 0

    produce(0, 100)
    leader = admin.list_topics("t", timeout=10).topics["t"].partitions[0].leader
    os.kill(running.node_pid(leader), signal.SIGKILL)
    produce(100, 200)

    consumer = Consumer({"bootstrap.servers": servers, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition("t", 0, 0)])
    values: list[int] = []
    eventually(lambda: values.extend(int(m.value()) for m in consumer.consume(500, 1.0)) or len(values) >= 200)
    consumer.close()
    assert values == list(range(200))
    running.stop()
    assert f"[{leader}] exited with code -9" in running.text
    assert running.text.count("pylogd stopped") == 2
    assert "Traceback" not in running.text


def test_given_ports_and_no_folder(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    cluster = DevCluster(tmp_path, "--brokers", "1", "--port", str(port))
    assert cluster.bootstrap() == f"127.0.0.1:{port}"
    assert cluster.stop() == 0
    assert (tmp_path / "pylogd-data" / "broker1" / "log" / "meta.properties").exists()
    assert dev.plan(3, 9092) == dev.Plan([9092, 9093, 9094], [10092, 10093, 10094])


def test_a_folder_with_other_data_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\n")
    command = [sys.executable, "-P", "-m", "pylogd.cli.main", "dev", "--data", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "holds the data of a single node" in done.stderr
