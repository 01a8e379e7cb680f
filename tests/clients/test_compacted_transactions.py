"""Transactions on a compacted topic: what was aborted is gone, what is open is not touched, and nothing that was
aborted comes back when compaction has removed the records around it."""

from __future__ import annotations

import time
from typing import Any

import confluent_kafka
import kafka
from support.admin import Admin
from support.clients import CLIENTS, Message
from support.daemon import Daemon
from support.wait import eventually

KEYS = [f"k{n}".encode() for n in range(5)]
ROUNDS = 4
Pairs = list[tuple[bytes, bytes]]


def producer(broker: Daemon, name: str) -> Any:
    made = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": name, "linger.ms": 0, "log_level": 0}
    )
    made.init_transactions(60)
    made.begin_transaction()
    return made


def write(made: Any, topic: str, keys: list[bytes], value: str) -> None:
    for key in keys:
        made.produce(topic, value.encode(), key)
    assert made.flush(60) == 0


def read_confluent(broker: Daemon, topic: str, committed: bool) -> Pairs:
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "none",
        "enable.partition.eof": True,
        "isolation.level": "read_committed" if committed else "read_uncommitted",
        "log_level": 0,
    }
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: Pairs = []
    try:
        while (message := consumer.poll(60)) is not None and message.error() is None:
            found.append((message.key(), message.value()))
        return found
    finally:
        consumer.close()


def read_kafka_python(broker: Daemon, topic: str, committed: bool) -> Pairs:
    level = "read_committed" if committed else "read_uncommitted"
    consumer = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=None, isolation_level=level)
    try:
        partition = kafka.TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        end = consumer.end_offsets([partition])[partition]
        found: Pairs = []
        while consumer.position(partition) < end:
            for records in consumer.poll(timeout_ms=200).values():
                found += [(record.key, record.value) for record in records]
        return found
    finally:
        consumer.close()


def without_rolls(pairs: Pairs) -> Pairs:
    return sorted(pair for pair in pairs if pair[0] != b"roll")


def test_compaction_keeps_to_what_transactions_have_decided(broker: Daemon, admin: Admin, topic_name: str) -> None:
    admin.create(
        topic_name,
        cleanup_policy="compact",
        segment_ms=100,
        min_cleanable_dirty_ratio=0.01,
        delete_retention_ms=0,
    )
    writer = producer(broker, f"{topic_name}.writer")

    def rounds(first: int) -> None:
        for number in range(first, first + ROUNDS):
            write(writer, topic_name, KEYS, f"committed-{number}")
            writer.commit_transaction(60)
            writer.begin_transaction()
            write(writer, topic_name, [*KEYS, b"only aborted"], f"aborted-{number}")
            writer.abort_transaction(60)
            writer.begin_transaction()
            time.sleep(0.12)

    def compacted(wanted: Pairs) -> bool:
        """Is that all there is, whether or not one looks at what is decided?"""
        # A record after the segment's age closes it; the active segment is never cleaned.
        CLIENTS[2].produce(broker.bootstrap, topic_name, [Message(b"roll", key=b"roll")])
        return without_rolls(read_confluent(broker, topic_name, committed=False)) == wanted

    rounds(0)
    left_open = producer(broker, f"{topic_name}.open")
    write(left_open, topic_name, [KEYS[0], b"open"], "open")
    rounds(ROUNDS)
    before = [(key, f"committed-{ROUNDS - 1}".encode()) for key in KEYS]
    behind = [(key, b"open") for key in (KEYS[0], b"open")]
    for number in range(ROUNDS, 2 * ROUNDS):
        behind += [(key, f"committed-{number}".encode()) for key in KEYS]
        behind += [(key, f"aborted-{number}".encode()) for key in (*KEYS, b"only aborted")]
    # Up to the open transaction everything is clean; behind its beginning nothing has been touched.
    eventually(lambda: compacted(sorted(before + behind)), timeout_s=90, pause_s=0.3)
    for read in (read_confluent, read_kafka_python):
        assert without_rolls(read(broker, topic_name, committed=True)) == before

    left_open.commit_transaction(60)
    last = [(key, f"committed-{2 * ROUNDS - 1}".encode()) for key in KEYS] + [(b"open", b"open")]
    eventually(lambda: compacted(sorted(last)), timeout_s=90, pause_s=0.3)
    for read in (read_confluent, read_kafka_python):
        assert without_rolls(read(broker, topic_name, committed=True)) == sorted(last)
    writer.abort_transaction(60)
