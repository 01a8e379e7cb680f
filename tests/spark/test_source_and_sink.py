"""Records through the stock sink and source, batch and streaming: all of them, once, with all they carry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.clients import Message
from support.scale import scaled
from support.spark import Kafka, assert_never_backwards, expected, finish, nonempty, places, summary
from support.wait import eventually

pytestmark = pytest.mark.spark

ROWS = scaled(test=3000, soak=300_000)


def pairs(count: int = ROWS, start: int = 0, prefix: str = "value") -> list[tuple[bytes, bytes]]:
    return [(str(n).encode(), f"{prefix} {n}".encode()) for n in range(start, start + count)]


def test_batch_write_then_read(spark: Any, kafka: Kafka, topic_name: str) -> None:
    kafka.create(topic_name, partitions=4)
    rows = spark.range(ROWS).selectExpr("cast(id as string) as key", "concat('value ', id) as value")
    kafka.write(rows, topic_name)
    assert summary(kafka.read(spark, topic_name)) == expected(pairs())


def test_headers_partitions_and_nulls(spark: Any, kafka: Kafka, topic_name: str) -> None:
    kafka.create(topic_name, partitions=3)
    rows = spark.range(30).selectExpr(
        "if(id % 2 = 0, cast(id as string), null) as key",
        "if(id % 5 = 0, null, cast(id as string)) as value",
        "array(named_struct('key', 'n', 'value', cast(cast(id as string) as binary)),"
        " named_struct('key', 'n', 'value', cast(null as binary))) as headers",
        "cast(id % 3 as int) as partition",
    )
    kafka.write(rows, topic_name)
    found = kafka.read(spark, topic_name, includeHeaders="true").collect()
    texts = [
        (row.partition, row.key and row.key.decode(), row.value and row.value.decode(), row.headers) for row in found
    ]
    numbers = sorted((int(headers[0].value), part, key, value) for part, key, value, headers in texts)
    assert numbers == [(n, n % 3, None if n % 2 else str(n), None if n % 5 == 0 else str(n)) for n in range(30)]
    assert all([(h.key, h.value is None) for h in row.headers] == [("n", False), ("n", True)] for row in found)


def test_stream_from_topic_to_topic(spark: Any, kafka: Kafka, topic_name: str, tmp_path: Path) -> None:
    """Trigger.AvailableNow reads what there is in bounded batches, and the next run only what is new."""
    source, sink = f"{topic_name}.in", f"{topic_name}.out"
    kafka.create(source, partitions=3)
    kafka.create(sink, partitions=2)
    limit = ROWS // 3

    def run() -> list[int]:
        frame = kafka.stream(spark, source, startingOffsets="earliest", maxOffsetsPerTrigger=limit)
        upper = frame.selectExpr("key", "upper(cast(value as string)) as value")
        query = finish(kafka.sink(upper, sink, tmp_path).trigger(availableNow=True).start())
        assert query.exception() is None
        assert_never_backwards(query.recentProgress)
        return list(nonempty(query.recentProgress))

    def produce(start: int) -> None:
        keyed = enumerate(pairs(ROWS, start))
        kafka.produce(source, [Message(value, key=key, partition=n % 3) for n, (key, value) in keyed])

    for start in (0, ROWS):
        produce(start)
        batches = run()
        assert sum(batches) == ROWS
        assert max(batches) <= limit
    assert summary(kafka.read(spark, sink)) == expected(pairs(2 * ROWS, prefix="VALUE"))


class Running:
    """A query into a table of the session, started from the end of a topic."""

    def __init__(self, spark: Any, kafka: Kafka, topic: str, checkpoint: Path, **options: object) -> None:
        self._spark = spark
        self.name = "t" + "".join(c if c.isalnum() else "_" for c in topic)
        columns = kafka.stream(spark, topic, **options).select("partition", "offset", "key", "value")
        writer = columns.writeStream.format("memory").queryName(self.name)
        self.query = writer.option("checkpointLocation", str(checkpoint)).start()
        # The source writes down where it starts: from then on "latest" is decided.
        eventually((checkpoint / "sources" / "0" / "0").exists, timeout_s=60)

    @property
    def table(self) -> Any:
        return self._spark.table(self.name)

    def wait_for(self, count: int) -> None:
        def enough() -> bool:
            if error := self.query.exception():
                raise error
            return bool(self.table.count() >= count)

        eventually(enough, timeout_s=120)

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *error: object) -> None:
        self.query.stop()


def test_small_batches_wait(spark: Any, kafka: Kafka, topic_name: str, tmp_path: Path) -> None:
    kafka.create(topic_name)
    options = {"minOffsetsPerTrigger": 20, "maxTriggerDelay": "1h"}
    with Running(spark, kafka, topic_name, tmp_path, **options) as running:
        for total, counts in ((20, (7, 13)), (40, (19, 1))):
            for count in counts:
                kafka.produce(topic_name, [Message(b"x")] * count)
            running.wait_for(total)
    assert places(running.table) == [(0, offset) for offset in range(40)]
    assert min(nonempty(running.query.recentProgress)) >= 20


def test_topic_that_grows(spark: Any, kafka: Kafka, topic_name: str, tmp_path: Path) -> None:
    """From the end of the topic; partitions that come while the query runs are read from their start.

    Without minOffsetsPerTrigger: Spark 4.0.0 itself stops a query that waits for more offsets when partitions come.
    """
    kafka.create(topic_name)
    kafka.produce(topic_name, [Message(b"before")] * 10)
    with Running(spark, kafka, topic_name, tmp_path) as running:
        kafka.produce(topic_name, [Message(b"after")] * 20)
        running.wait_for(20)
        kafka.admin.grow(topic_name, 3)
        eventually(lambda: kafka.admin.partitions(topic_name) == 3)
        kafka.produce(topic_name, [Message(b"new", partition=n % 3) for n in range(30)])
        running.wait_for(50)
        running.query.processAllAvailable()
    wanted = [(0, offset) for offset in range(10, 40)] + [(part, n) for part in (1, 2) for n in range(10)]
    assert places(running.table) == sorted(wanted)
    assert_never_backwards(running.query.recentProgress)
