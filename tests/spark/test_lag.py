"""Queries' progress as consumer groups, read with Kafka's own kafka-consumer-groups."""

from __future__ import annotations

import logging
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
from pylogd.spark_connector.lag import offsets_of, publish_lag
from support.clients import Message
from support.jvm import ToolHost
from support.ports import free_ports
from support.spark import Kafka, finish
from support.tools import Tools
from support.wait import eventually

pytestmark = pytest.mark.spark

PARTITIONS = 2


def lag(tools: ToolHost, kafka: Kafka, group: str) -> dict[tuple[str, int], tuple[str, str, str]]:
    """(topic, partition) to committed offset, log end offset and lag, as the tool prints them."""
    text = Tools(tools, kafka.bootstrap).run("consumer-groups", "--describe", "--group", group)
    rows = [line.split() for line in text.splitlines() if line.startswith(group)]
    return {(row[1], int(row[2])): (row[3], row[4], row[5]) for row in rows}


def numbered(start: int, count: int) -> list[Message]:
    return [Message(f"{n}".encode(), partition=n % PARTITIONS) for n in range(start, start + count)]


def run(spark: Any, kafka: Kafka, topic: str, name: str, checkpoint: Path) -> None:
    frame = kafka.stream(spark, topic, startingOffsets="earliest", maxOffsetsPerTrigger=100)
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).queryName(name)
    assert finish(writer.trigger(availableNow=True).start()).exception() is None


def test_lag_of_several_queries_over_a_restart(
    spark: Any, three: Kafka, topic_name: str, tools: ToolHost, tmp_path: Path
) -> None:
    other = f"{topic_name}.other"
    three.create(topic_name, PARTITIONS)
    three.create(other)
    three.produce(topic_name, numbered(0, 150))
    three.produce(other, [Message(b"x")] * 7)
    with publish_lag(spark, three.bootstrap):
        run(spark, three, topic_name, "first", tmp_path / "first")
        run(spark, three, other, "second", tmp_path / "second")
    assert lag(tools, three, "spark-second") == {(other, 0): ("7", "7", "0")}
    three.produce(topic_name, numbered(150, 20))
    everywhere = {(topic_name, 0): ("75", "85", "10"), (topic_name, 1): ("75", "85", "10")}
    assert lag(tools, three, "spark-first") == everywhere
    # The same query again, as a restarted driver would run it: the group goes on from where it was.
    with publish_lag(spark, three.bootstrap):
        run(spark, three, topic_name, "first", tmp_path / "first")
    assert lag(tools, three, "spark-first") == dict.fromkeys(everywhere, ("85", "85", "0"))


def test_a_broker_that_does_not_answer_stops_no_query(
    spark: Any, one: Kafka, topic_name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one.create(topic_name)
    one.produce(topic_name, [Message(b"x")] * 5)
    [nobody] = free_ports(1)
    listener = publish_lag(spark, f"127.0.0.1:{nobody}", bootstrap_timeout_ms=500)
    try:
        with caplog.at_level(logging.WARNING):
            run(spark, one, topic_name, "unheard", tmp_path)
            eventually(lambda: "spark-unheard could not be committed" in caplog.text)
    finally:
        listener.close(timeout_s=5)


def test_offsets_of_a_progress_report() -> None:
    source = namedtuple("source", "description endOffset")
    assert offsets_of([source("FileStreamSource[/x]", '{"logOffset":0}'), source("KafkaV2[Subscribe[t]]", None)]) == {}
    twice = [source("KafkaV2[Subscribe[t]]", '{"t":{"0":9}}'), source("KafkaV2[Assign[t-0]]", '{"t":{"0":5,"1":1}}')]
    assert offsets_of(twice) == {("t", 0): 5, ("t", 1): 1}
