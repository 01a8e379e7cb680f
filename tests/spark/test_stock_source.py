"""Spark's stock Kafka source and sink, unchanged, against the broker: batch and streaming, both directions."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support.admin import Admin
from support.clients import Confluent, Message
from support.daemon import Daemon
from support.scale import scaled

pytestmark = pytest.mark.spark

confluent = Confluent()
ROWS = scaled(test=3000, soak=300_000)


def source(spark, broker: Daemon, topic: str, **options: str):  # type: ignore[no-untyped-def]
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap).option("subscribe", topic)
    return reader.options(**options).load()


def test_batch_write_then_read(spark, broker: Daemon, admin: Admin, topic_name: str) -> None:  # type: ignore[no-untyped-def]
    admin.create(topic_name, partitions=4)
    rows = spark.range(ROWS).selectExpr("cast(id as string) as key", "concat('value ', id) as value")
    rows.write.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap).option("topic", topic_name).save()
    frame = source(spark, broker, topic_name, startingOffsets="earliest", endingOffsets="latest")
    found = {(bytes(r.key), bytes(r.value)) for r in frame.select("key", "value").collect()}
    assert found == {(str(n).encode(), f"value {n}".encode()) for n in range(ROWS)}
    assert frame.count() == ROWS


def test_offsets_and_timestamps(spark, broker: Daemon, admin: Admin, topic_name: str) -> None:  # type: ignore[no-untyped-def]
    admin.create(topic_name, partitions=1)
    base = int(time.time()) * 1000 - 1_000_000
    messages = [Message(str(n).encode(), timestamp=base + n * 1000, headers=(("n", b"1"),)) for n in range(100)]
    confluent.produce(broker.bootstrap, topic_name, messages, codec="lz4")
    # minPartitions makes several tasks start in the middle of batches.
    frame = source(
        spark,
        broker,
        topic_name,
        startingOffsets=f'{{"{topic_name}":{{"0":10}}}}',
        endingOffsets=f'{{"{topic_name}":{{"0":90}}}}',
        minPartitions="4",
        includeHeaders="true",
    )
    found = sorted((r.offset, int(r.value), int(r.timestamp.timestamp() * 1000)) for r in frame.collect())
    assert found == [(n, n, base + n * 1000) for n in range(10, 90)]
    by_time = source(
        spark, broker, topic_name, startingTimestamp=str(base + 50_000), endingTimestamp=str(base + 60_000)
    )
    assert sorted(int(r.value) for r in by_time.collect()) == list(range(50, 60))


def test_stream_available_now(  # type: ignore[no-untyped-def]
    spark, broker: Daemon, admin: Admin, topic_name: str, tmp_path: Path
) -> None:
    source_topic, sink_topic = f"{topic_name}.in", f"{topic_name}.out"
    admin.create(source_topic, partitions=3)
    admin.create(sink_topic, partitions=2)

    def run() -> None:
        stream = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("subscribe", source_topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", str(ROWS // 3))
            .load()
            .selectExpr("key", "upper(cast(value as string)) as value")
        )
        query = (
            stream.writeStream.format("kafka")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("topic", sink_topic)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        assert query.exception() is None

    def produce(start: int) -> None:
        batch = [Message(f"row {n}".encode(), key=b"k", partition=n % 3) for n in range(start, start + ROWS)]
        confluent.produce(broker.bootstrap, source_topic, batch, idempotence=True)

    produce(0)
    run()
    # The second run goes on from the checkpoint and sees only what is new.
    produce(ROWS)
    run()
    written = [bytes(r.value) for r in source(spark, broker, sink_topic).collect()]
    assert sorted(written) == sorted(f"ROW {n}".encode() for n in range(2 * ROWS))
