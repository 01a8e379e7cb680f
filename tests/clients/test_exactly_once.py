"""Exactly once: a consume-transform-produce loop and its broker are killed at random, and the output is the input."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import pytest
from support.admin import Admin
from support.daemon import Daemon
from support.paths import SUPPORT
from support.scale import scaled
from support.transactional import read

PARTITIONS = 3
KILLS = scaled(test=3, soak=20)


class Copier:
    """The loop, started again whenever it ends."""

    def __init__(self, log: Path, *args: str) -> None:
        self._log = log
        self._args = args
        self.starts = 0
        self.process: subprocess.Popen[bytes] | None = None

    def keep_running(self) -> None:
        if self.process is None or self.process.poll() is not None:
            self.starts += 1
            with open(self._log, "ab") as log:
                command = [sys.executable, str(SUPPORT / "copier.py"), *self._args]
                self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def fill(bootstrap: str, topic: str, numbers: range) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
    for n in numbers:
        producer.produce(topic, str(n).encode(), partition=n % PARTITIONS)
    assert producer.flush(60) == 0


@pytest.mark.parametrize("victim", ["copier", "broker"])
def test_copied_exactly_once(new_broker: Callable[..., Daemon], tmp_path: Path, topic_name: str, victim: str) -> None:
    broker = new_broker({"group.min.session.timeout.ms": "100", "log.flush.interval.messages": "1"})
    admin = Admin(broker.bootstrap)
    source, target = f"{topic_name}.in", f"{topic_name}.out"
    admin.create(source, partitions=PARTITIONS)
    admin.create(target, partitions=PARTITIONS)
    chance = random.Random(11)
    count = 600 * (KILLS + 1)
    wanted = {p: [f"{p}:{n}".encode() for n in range(count) if n % PARTITIONS == p] for p in range(PARTITIONS)}
    copier = Copier(tmp_path / "copier.log", broker.bootstrap, source, target, topic_name)

    def copied() -> dict[int, list[bytes]]:
        return {p: read(broker.bootstrap, target, committed=True, partition=p) for p in range(PARTITIONS)}

    def run_until(records: int) -> dict[int, list[bytes]]:
        deadline = time.monotonic() + 120
        while True:
            copier.keep_running()
            found = copied()
            if sum(map(len, found.values())) >= records:
                return found
            assert time.monotonic() < deadline, f"{found}\n{copier._log.read_text()}\n{broker.log_tail()}"
            time.sleep(0.05)

    try:
        for number in range(KILLS):
            fill(broker.bootstrap, source, range(600 * number, 600 * (number + 1)))
            # Somewhere in the middle of a transaction, more often than not.
            run_until(600 * number + chance.randrange(1, 500))
            if victim == "broker":
                broker.kill()
                broker.start()
            # librdkafka may wait for ever for a group coordinator that came back, Kafka's too: it goes in any case.
            copier.kill()
        fill(broker.bootstrap, source, range(600 * KILLS, count))
        found = run_until(count)
        assert found == wanted
        assert copier.starts > KILLS
    finally:
        copier.kill()
    assert copied() == wanted
