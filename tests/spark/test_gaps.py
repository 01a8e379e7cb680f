"""Offsets without a record: aborted transactions, their markers, compaction, and what retention took away."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from support.clients import Confluent, Message
from support.spark import Kafka, expected, finish, places, summary
from support.transactional import ConfluentTransactions
from support.wait import eventually

pytestmark = pytest.mark.spark

confluent = Confluent()


def rows_of(spark: Any, kafka: Kafka, topic: str, checkpoint: Path, **options: object) -> list[Any]:
    """What one run of a streaming query over a topic hands out."""
    rows: list[Any] = []
    frame = kafka.stream(spark, topic, startingOffsets="earliest", **options)
    writer = frame.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
    assert finish(writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start())
    return rows


def test_read_committed(spark: Any, kafka: Kafka, topic_name: str, tmp_path: Path) -> None:
    """Two producers interleave, every third transaction is aborted, and the last is still open when Spark reads."""
    kafka.create(topic_name, partitions=2)
    committed: list[tuple[None, bytes]] = []
    everything: list[tuple[None, bytes]] = []
    with ExitStack() as stack:
        producers = [stack.enter_context(ConfluentTransactions(kafka.bootstrap, f"{topic_name}-{n}")) for n in range(2)]
        for round_ in range(12):
            for n, producer in enumerate(producers):
                producer.begin()
                for part in range(2):
                    value = f"{round_} {n} {part}".encode()
                    producer.send(topic_name, value, part)
                    everything.append((None, value))
                    if (round_ + n) % 3:
                        committed.append((None, value))
            for n, producer in enumerate(producers):
                producer.commit() if (round_ + n) % 3 else producer.abort()
        producers[0].begin()
        producers[0].send(topic_name, b"undecided")
        everything.append((None, b"undecided"))
        options = {"kafka.isolation.level": "read_committed"}
        # Small tasks and batches: some hold nothing but aborted records and markers.
        assert summary(kafka.read(spark, topic_name, minPartitions=9, **options)) == expected(committed)
        assert summary(kafka.read(spark, topic_name)) == expected(everything)
        found = rows_of(spark, kafka, topic_name, tmp_path, maxOffsetsPerTrigger=16, **options)
        assert sorted(bytes(row.value) for row in found) == sorted(value for _, value in committed)
        producers[0].abort()
    assert summary(kafka.read(spark, topic_name, **options)) == expected(committed)


def test_compacted(spark: Any, kafka: Kafka, topic_name: str, tmp_path: Path) -> None:
    """With gaps where records were replaced, and where transactions were aborted."""
    kafka.create(
        topic_name,
        cleanup_policy="compact",
        segment_ms=100,
        min_cleanable_dirty_ratio=0.01,
        delete_retention_ms=600_000,
    )
    survivors: dict[bytes, tuple[int, bytes]] = {}
    end = 0
    for round_ in range(6):
        # Fewer keys in each round: what survives is spread over the whole log.
        batch = [Message(f"{key}-{round_}".encode(), key=f"k{key}".encode()) for key in range(round_, 12)]
        kafka.produce(topic_name, batch, codec="lz4")
        for message in batch:
            assert message.key is not None
            assert message.value is not None
            survivors[message.key] = (end, message.value)
            end += 1
        if round_ % 2:
            end += abort(kafka, topic_name, [f"k{key}".encode() for key in range(12)])
        time.sleep(0.12)  # the age at which the next record closes the segment
    wanted = sorted((offset, value) for offset, value in survivors.values())

    def compacted() -> bool:
        kafka.produce(topic_name, [Message(b"roll", key=b"roll")])
        return [(m.offset, m.value) for m in held(kafka, topic_name) if m.key != b"roll"] == wanted

    eventually(compacted, timeout_s=60, pause_s=0.3)

    def keyed(frame: Any) -> list[tuple[int, bytes]]:
        found = frame.where("key != cast('roll' as binary)").select("offset", "value").collect()
        return sorted((row.offset, bytes(row.value)) for row in found)

    committed = {"kafka.isolation.level": "read_committed"}
    assert keyed(kafka.read(spark, topic_name, minPartitions=5, **committed)) == wanted
    # From an offset that compaction took, to another.
    inside = {"startingOffsets": at(topic_name, 3), "endingOffsets": at(topic_name, end - 8)}
    part = kafka.read(spark, topic_name, **inside, **committed)
    assert keyed(part) == [row for row in wanted if 3 <= row[0] < end - 8]
    rows = rows_of(spark, kafka, topic_name, tmp_path, maxOffsetsPerTrigger=20, **committed)
    assert sorted((row.offset, bytes(row.value)) for row in rows if bytes(row.key) != b"roll") == wanted


def abort(kafka: Kafka, topic: str, keys: list[bytes]) -> int:
    """An aborted transaction; how many offsets it took, with its marker."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(60)
    producer.begin_transaction()
    for key in keys:
        producer.produce(topic, b"aborted", key=key, partition=0)
    assert producer.flush(60) == 0
    producer.abort_transaction(60)
    return len(keys) + 1


def at(topic: str, offset: int) -> str:
    return json.dumps({topic: {"0": offset}})


def held(kafka: Kafka, topic: str) -> Iterator[Message]:
    """The records that a partition still has."""
    position, end = confluent.watermarks(kafka.bootstrap, topic)
    while position < end:
        [message] = confluent.consume(kafka.bootstrap, topic, 1, offset=position)
        yield message
        position = message.offset + 1


RECORD = b"x" * 10_000
RECORDS = 250


@pytest.mark.parametrize("strict", [True, False])
def test_retention_deletes_under_the_reader(
    spark: Any, kafka: Kafka, topic_name: str, tmp_path: Path, strict: bool
) -> None:
    """failOnDataLoss both ways, when segments go between planning a batch and reading it, and before a batch."""
    kafka.create(topic_name, segment_bytes=1_048_576)
    kafka.produce(topic_name, [Message(RECORD) for _ in range(RECORDS)])

    def start() -> int:
        return confluent.watermarks(kafka.bootstrap, topic_name)[0]

    found: list[list[tuple[int, int]]] = []

    def read(batch: Any, _: int) -> None:
        kafka.admin.alter(topic_name, retention_bytes=1_048_576)
        eventually(lambda: start() > 0)
        found.append(places(batch))

    options: dict[str, object] = {"failOnDataLoss": str(strict).lower()}
    frame = kafka.stream(spark, topic_name, startingOffsets="earliest", **options)
    query = (
        frame.writeStream.foreachBatch(read)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    from_the_start = {"startingOffsets": at(topic_name, 0), **options}
    if strict:
        with pytest.raises(Exception, match=r"(?i)data loss|failOnDataLoss"):
            finish(query)
        with pytest.raises(Exception, match=r"(?i)data loss|failOnDataLoss"):
            summary(kafka.read(spark, topic_name, **from_the_start))
    else:
        assert finish(query).exception() is None
        left = [(0, offset) for offset in range(start(), RECORDS)]
        assert found == [left]
        assert places(kafka.read(spark, topic_name, **from_the_start)) == left
