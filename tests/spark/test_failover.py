"""The leader of what a query reads and writes is killed in the middle of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.loaded_cluster import Load, LoadedCluster
from support.scale import scaled
from support.spark import Kafka, assert_never_backwards, expected, offsets, summary
from support.wait import eventually

pytestmark = [pytest.mark.spark, pytest.mark.pylogd_only]

RECORDS = scaled(test=500, soak=20_000)


def test_leader_killed_in_the_middle_of_a_query(
    spark: Any, three: Kafka, cluster: LoadedCluster, topic_name: str, tmp_path: Path
) -> None:
    source, sink = f"{topic_name}.in", f"{topic_name}.out"
    # One broker leads both, so that reading and writing lose their leader at once.
    for topic in (source, sink):
        cluster.create(topic, 2, 3, 1)
        cluster.wait_in_sync(topic)
    load = Load(cluster, source)
    frame = three.stream(spark, source, startingOffsets="earliest", maxOffsetsPerTrigger=RECORDS)
    query = three.sink(frame.select("key", "value"), sink, tmp_path).start()
    try:
        load.wait_for(RECORDS)
        eventually(lambda: rows(query) > 0, timeout_s=60)
        cluster.nodes[2].kill()
        load.wait_for(RECORDS)
        acknowledged = load.stop()
        eventually(lambda: position(query, source) == len(acknowledged), timeout_s=120)
        reports = query.recentProgress
    finally:
        query.stop()
        if cluster.nodes[2].process is None:
            cluster.nodes[2].start()
    assert query.exception() is None
    assert_never_backwards(reports)
    assert summary(three.read(spark, sink)) == expected((None, value) for value in acknowledged)
    for topic in (source, sink):
        cluster.wait_in_sync(topic)


def rows(query: Any) -> int:
    return sum(report.numInputRows for report in query.recentProgress)


def position(query: Any, topic: str) -> int:
    report = query.lastProgress
    return offsets(report.sources[0]["endOffset"]).get((topic, 0), 0) if report else 0
