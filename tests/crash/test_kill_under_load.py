"""Kill -9 while producers write; after the restart every acknowledged record is there, in order, once.

A killed process loses nothing that it handed to the kernel, so this holds with and without flushes; what fsync adds is
shown by the fault-injecting file system of the storage tests.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import confluent_kafka
import pytest
from support.admin import Admin
from support.clients import Confluent
from support.daemon import Daemon
from support.scale import scaled

confluent = Confluent()
ROUNDS = scaled(test=3, soak=50)
PARTITIONS = 3


class Writer:
    """One idempotent librdkafka producer that numbers its records per partition and notes each acknowledgement."""

    def __init__(self, bootstrap: str, topic: str, name: str, codec: str) -> None:
        self.name = name
        self.topic = topic
        self.sent = [0] * PARTITIONS
        self.acknowledged: dict[tuple[int, int], int] = {}
        self.errors: list[str] = []
        self._stop = threading.Event()
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "log_level": 0,
                "enable.idempotence": True,
                "compression.type": codec,
                "linger.ms": 1,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "queue.buffering.max.messages": 2000,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _report(self, partition: int, number: int) -> Callable[[object, confluent_kafka.Message], None]:
        def report(error: object, message: confluent_kafka.Message) -> None:
            if error is not None:
                self.errors.append(str(error))
            else:
                self.acknowledged[partition, number] = message.offset()

        return report

    def _run(self) -> None:
        while not self._stop.is_set():
            partition = sum(self.sent) % PARTITIONS
            number = self.sent[partition]
            try:
                self._producer.produce(
                    self.topic,
                    value=f"{self.name} {number}".encode(),
                    partition=partition,
                    on_delivery=self._report(partition, number),
                )
                self.sent[partition] += 1
                self._producer.poll(0)
            except BufferError:
                self._producer.poll(0.05)
        left = self._producer.flush(120)
        if left:
            self.errors.append(f"{left} records were never acknowledged")

    def finish(self) -> None:
        self._stop.set()
        self._thread.join(150)
        assert not self._thread.is_alive()


@pytest.mark.timeout(scaled(test=300, soak=3600))
@pytest.mark.parametrize("flush", ["flush.messages=1", "page cache"])
def test_acknowledged_records_survive_kill(new_broker: Callable[..., Daemon], topic_name: str, flush: str) -> None:
    broker = new_broker({"log.segment.bytes": "1048576"})
    settings = {"flush_messages": 1} if flush == "flush.messages=1" else {}
    Admin(broker.bootstrap).create(topic_name, partitions=PARTITIONS, **settings)
    codecs = ["none", "lz4", "zstd"]
    writers = [Writer(broker.bootstrap, topic_name, f"w{n}", codec) for n, codec in enumerate(codecs)]
    for _ in range(ROUNDS):
        before = sum(len(w.acknowledged) for w in writers)
        deadline = time.monotonic() + 60
        while sum(len(w.acknowledged) for w in writers) < before + scaled(test=3000, soak=30_000):
            assert time.monotonic() < deadline, "nothing is acknowledged any more"
            time.sleep(0.01)
        broker.kill()
        broker.start()
    for writer in writers:
        writer.finish()
        assert not writer.errors, writer.errors[:5]
    for partition in range(PARTITIONS):
        start, end = confluent.watermarks(broker.bootstrap, topic_name, partition)
        assert start == 0
        found = confluent.consume(broker.bootstrap, topic_name, end, partition=partition)
        assert [m.offset for m in found] == list(range(end))
        for writer in writers:
            mine = [m for m in found if (m.value or b"").split()[0] == writer.name.encode()]
            # In order, once, nothing missing: all were acknowledged in the end.
            assert [int((m.value or b"").split()[1]) for m in mine] == list(range(writer.sent[partition]))
            for number, m in enumerate(mine):
                assert writer.acknowledged[partition, number] == m.offset


def test_clean_restart_keeps_everything(new_broker: Callable[..., Daemon], topic_name: str) -> None:
    broker = new_broker()
    admin = Admin(broker.bootstrap)
    admin.create(topic_name, partitions=PARTITIONS, retention_ms=987654321)
    writer = Writer(broker.bootstrap, topic_name, "w", "none")
    deadline = time.monotonic() + 60
    while len(writer.acknowledged) < 1000:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    broker.restart()
    writer.finish()
    assert not writer.errors
    for partition in range(PARTITIONS):
        found = confluent.consume(broker.bootstrap, topic_name, writer.sent[partition], partition=partition)
        assert [m.value for m in found] == [f"w {n}".encode() for n in range(writer.sent[partition])]
    assert Admin(broker.bootstrap).config(topic_name)["retention.ms"] == "987654321"
