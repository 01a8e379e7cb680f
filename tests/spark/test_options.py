"""Where the stock source starts and ends, and what it subscribes to: every option, in batch and streaming.

A query costs about a second whatever it reads, so the cases run together: one job reads the union of all.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.clients import Message
from support.spark import Kafka, finish

pytestmark = pytest.mark.spark

PARTITIONS, RECORDS = 3, 40
BASE_MS = int(time.time()) * 1000 - 1_000_000
Ranges = list[range]
ALL: Ranges = [range(RECORDS)] * PARTITIONS


def timestamp(partition: int, number: int) -> int:
    return BASE_MS + number * 1000 + partition * 500


def numbered(numbers: range) -> Iterator[Message]:
    for partition in range(PARTITIONS):
        for n in numbers:
            yield Message(f"{n}".encode(), partition=partition, timestamp=timestamp(partition, n))


def places(topic: str, ranges: Ranges) -> set[tuple[str, int, int]]:
    return {(topic, partition, offset) for partition, span in enumerate(ranges) for offset in span}


def together(frames: dict[str, Any]) -> Any:
    from pyspark.sql.functions import lit

    cases = [frame.select(lit(case).alias("case"), "topic", "partition", "offset") for case, frame in frames.items()]
    return functools.reduce(lambda left, right: left.union(right), cases)


def by_case(rows: list[Any]) -> dict[str, list[tuple[str, int, int]]]:
    found: dict[str, list[tuple[str, int, int]]] = {}
    for row in rows:
        found.setdefault(row.case, []).append((row.topic, row.partition, row.offset))
    return found


def assert_exact(rows: list[Any], wanted: dict[str, set[tuple[str, int, int]]]) -> None:
    found = by_case(rows)
    for case, places in wanted.items():
        assert sorted(found.get(case, [])) == sorted(places), case


def starts(topic: str) -> dict[str, tuple[dict[str, object], list[int]]]:
    """Starting options that batch and streaming share, and the first offset of each partition."""

    def each(*values: int) -> str:
        return json.dumps({topic: {str(n): value for n, value in enumerate(values)}})

    between = timestamp(0, 15)
    return {
        "earliest": ({"startingOffsets": "earliest"}, [0, 0, 0]),
        "per partition": ({"startingOffsets": each(10, -2, 39)}, [10, 0, 39]),
        "timestamp": ({"startingTimestamp": between}, [15, 15, 14]),
        "timestamp per partition": (
            {"startingOffsetsByTimestamp": each(BASE_MS, timestamp(1, 20) + 1, timestamp(2, 7))},
            [0, 21, 7],
        ),
        "timestamp after the end": (
            {"startingTimestamp": timestamp(0, RECORDS - 1) + 200, "startingOffsetsByTimestampStrategy": "latest"},
            [RECORDS, 39, 39],
        ),
    }


def test_batch_from_and_to(spark: Any, kafka: Kafka, topic_name: str) -> None:
    other = f"{topic_name}.other"
    for name in (topic_name, other):
        kafka.create(name, PARTITIONS)
        kafka.produce(name, numbered(range(RECORDS)), codec="lz4")
    frames: dict[str, Any] = {}
    wanted: dict[str, set[tuple[str, int, int]]] = {}

    def case(name: str, ranges: Ranges, **options: object) -> None:
        frames[name] = kafka.read(spark, topic_name, **options)
        wanted[name] = places(topic_name, ranges)

    case("by default", ALL)
    for name, (options, first) in starts(topic_name).items():
        case(name, [range(at, RECORDS) for at in first], **options)
    ends = json.dumps({topic_name: {"0": 20, "1": 5, "2": -1}})
    case("to latest", ALL, endingOffsets="latest")
    case("to offsets", [range(20), range(5), range(RECORDS)], endingOffsets=ends)
    case("to timestamp", [range(15), range(15), range(14)], endingTimestamp=timestamp(0, 15))
    # Where no record is so young, the end is the end.
    case("to timestamp after the end", ALL, endingTimestamp=timestamp(2, RECORDS) + 1)
    times = {"0": timestamp(0, 1), "1": timestamp(1, RECORDS), "2": timestamp(2, 10)}
    until = json.dumps({topic_name: times})
    case("to timestamp per partition", [range(1), range(RECORDS), range(10)], endingOffsetsByTimestamp=until)
    case("more tasks than partitions", ALL, minPartitions=11)

    both = places(topic_name, ALL) | places(other, ALL)
    subscriptions: dict[str, tuple[dict[str, object], set[tuple[str, int, int]]]] = {
        "subscribe": ({"subscribe": f"{topic_name},{other}"}, both),
        "pattern": ({"subscribePattern": f"{topic_name.replace('.', '[.]')}.*"}, both),
        "assign": (
            {"assign": json.dumps({topic_name: [0, 2]})},
            {place for place in places(topic_name, ALL) if place[1] != 1},
        ),
    }
    for name, (options, found) in subscriptions.items():
        frames[name] = kafka.read(spark, None, **options)
        wanted[name] = found
    assert frames["more tasks than partitions"].rdd.getNumPartitions() >= 11
    assert_exact(together(frames).collect(), wanted)


def test_a_starting_time_after_the_end_is_refused(spark: Any, one: Kafka, topic_name: str) -> None:
    """By default no offset for a time is an error, and Spark learns of it from the broker's answer -1."""
    one.create(topic_name, PARTITIONS)
    one.produce(topic_name, numbered(range(2)))
    frame = one.read(spark, topic_name, startingTimestamp=timestamp(PARTITIONS, RECORDS))
    with pytest.raises(Exception, match="No offset matched"):
        frame.collect()


def test_stream_from(spark: Any, kafka: Kafka, topic_name: str, tmp_path: Path) -> None:
    """A first run from each starting option, and a second that goes on from the checkpoint."""
    kafka.create(topic_name, PARTITIONS)
    kafka.produce(topic_name, numbered(range(RECORDS)))
    cases = starts(topic_name)
    cases["latest"] = ({"startingOffsets": "latest"}, [RECORDS] * PARTITIONS)
    ends = json.dumps({topic_name: {"0": -1, "1": -2, "2": 3}})
    cases["latest, earliest and an offset"] = ({"startingOffsets": ends}, [RECORDS, 0, 3])
    subscriptions: dict[str, dict[str, object]] = {
        "pattern": {
            "subscribePattern": f"{topic_name.replace('.', '[.]')}.*",
            "startingOffsets": "earliest",
            # Spark 4.0 heeds it in streams only.
            "maxRecordsPerPartition": 20,
        },
        "assign": {"assign": json.dumps({topic_name: [1]}), "startingOffsets": "earliest"},
    }
    rows: list[Any] = []

    def run() -> None:
        # As many sources as cases in one query; Spark plans and checkpoints each by itself.
        frames = {
            name: kafka.stream(spark, topic_name, **options, **({} if number else {"minPartitions": 7}))
            for number, (name, (options, _)) in enumerate(cases.items())
        }
        frames |= {name: kafka.stream(spark, None, **options) for name, options in subscriptions.items()}
        collect: Callable[[Any, int], None] = lambda frame, _: rows.extend(frame.collect())  # noqa: E731
        writer = together(frames).writeStream.foreachBatch(collect).option("checkpointLocation", str(tmp_path))
        assert finish(writer.trigger(availableNow=True).start()).exception() is None

    run()
    kafka.produce(topic_name, numbered(range(RECORDS, RECORDS + 5)))
    # A topic that the pattern finds when the query runs already is read from its start.
    other = kafka.create(f"{topic_name}.other", PARTITIONS)
    kafka.produce(other, numbered(range(3)))
    run()
    wanted = {name: places(topic_name, [range(at, RECORDS + 5) for at in first]) for name, (_, first) in cases.items()}
    everything = places(topic_name, [range(RECORDS + 5)] * PARTITIONS)
    wanted["pattern"] = everything | places(other, [range(3)] * PARTITIONS)
    wanted["assign"] = {place for place in everything if place[1] == 1}
    assert_exact(rows, wanted)
