"""Kafka's own tools on a cluster of three, one of which goes and comes back: lists of partitions in trouble, moves of
replicas, elections, endpoints, a broker that is taken off the books."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.jvm import ToolHost
from support.loaded_cluster import LoadedCluster, start_move
from support.tools import Tools
from support.wait import eventually

pytestmark = pytest.mark.jvm

TROUBLES = ("under-replicated", "at-min-isr", "under-min-isr", "unavailable")


@pytest.fixture(scope="module")
def kafka_tools(cluster: LoadedCluster, tools: ToolHost) -> Tools:
    return Tools(tools, cluster.bootstrap)


def listed(tools: Tools) -> dict[str, set[str]]:
    """The topics of this module in each of the tool's lists."""
    found = {}
    for trouble in TROUBLES:
        text = tools.run("topics", "--describe", f"--{trouble}-partitions")
        names = {line.split("\t")[1].partition(": ")[2] for line in text.splitlines() if line.startswith("\tTopic: ")}
        found[trouble] = {name for name in names if name.startswith("tools.")}
    return found


def plan(path: Path, topic: str, *replicas: int) -> list[str]:
    path.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": replicas}]}))
    return ["--reassignment-json-file", str(path)]


def test_a_broker_is_lost(cluster: LoadedCluster, kafka_tools: Tools, tmp_path: Path) -> None:
    run = kafka_tools.run
    gone = next(n for n in cluster.nodes if n != cluster.active_controller())
    first, second = (n for n in cluster.nodes if n != gone)
    cluster.create("tools.three", gone, first, second)
    cluster.create("tools.two", gone, first)
    cluster.create("tools.alone", gone)
    cluster.create("tools.moved", first, second)
    assert listed(kafka_tools) == {
        "under-replicated": set(),
        "at-min-isr": {"tools.two", "tools.moved"},
        "under-min-isr": {"tools.alone"},
        "unavailable": set(),
    }
    cluster.nodes[gone].kill()
    cluster.wait_in_sync("tools.three", first, second)
    cluster.wait_in_sync("tools.two", first)
    eventually(lambda: cluster.state("tools.alone")[0] == -1)
    assert listed(kafka_tools) == {
        "under-replicated": {"tools.three", "tools.two", "tools.alone"},
        "at-min-isr": {"tools.three", "tools.moved"},
        "under-min-isr": {"tools.two", "tools.alone"},
        "unavailable": {"tools.alone"},
    }

    # A move to a broker that is down (the tool itself would refuse to start it) waits, and can be called off.
    start_move(cluster, "tools.moved", [first, gone])
    move = plan(tmp_path / "move.json", "tools.moved", first, gone)
    assert "still in progress" in run("reassign-partitions", "--verify", "--preserve-throttles", *move)
    going = run("reassign-partitions", "--list")
    assert f"tools.moved-0: replicas: {first},{gone},{second}. adding: {gone}. removing: {second}." in going
    assert "Successfully cancelled partition reassignment for: tools.moved-0" in run(
        "reassign-partitions", "--cancel", "--preserve-throttles", *move
    )
    assert "No partition reassignments found" in run("reassign-partitions", "--list")
    assert cluster.state("tools.moved")[1] == {first, second}

    # Off the books, and back on them by its own registration.
    everybody = ("cluster", "list-endpoints", "--include-fenced-brokers")
    states = {row[0]: row[4] for row in map(str.split, run(*everybody).splitlines())}
    assert states == {"ID": "STATE", str(gone): "fenced", str(first): "unfenced", str(second): "unfenced"}
    assert "is no longer registered" in run("cluster", "unregister", "--id", str(gone))
    assert {line.split()[0] for line in run(*everybody).splitlines()} == {"ID", str(first), str(second)}
    cluster.nodes[gone].start()
    cluster.wait_in_sync("tools.three")
    cluster.wait_in_sync("tools.two", gone, first)
    cluster.wait_in_sync("tools.alone", gone)
    assert listed(kafka_tools)["under-replicated"] == set()

    # Its leaderships come back when somebody asks.
    assert cluster.state("tools.three")[0] != gone
    elect = ("leader-election", "--election-type", "preferred")
    said = run(*elect, "--topic", "tools.three", "--partition", "0")
    assert "Successfully completed leader election (PREFERRED)" in said
    eventually(lambda: cluster.state("tools.three")[0] == gone)
    election = tmp_path / "election.json"
    election.write_text(json.dumps({"partitions": [{"topic": "tools.two", "partition": 0}]}))
    run(*elect, "--path-to-json-file", str(election))
    eventually(lambda: cluster.state("tools.two")[0] == gone)


def test_a_throttled_move(cluster: LoadedCluster, kafka_tools: Tools, tmp_path: Path) -> None:
    run = kafka_tools.run
    cluster.create("tools.throttled", 1, 2)
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "tools.throttled"}]}))
    which = ("--topics-to-move-json-file", str(topics), "--broker-list", "2,3")
    proposed = run("reassign-partitions", "--generate", *which)
    assert '"replicas":[1,2]' in proposed
    move = plan(tmp_path / "move.json", "tools.throttled", 3, 2)
    done = run("reassign-partitions", "--execute", *move, "--throttle", "10000000")
    assert "The inter-broker throttle limit was set to 10000000 B/s" in done
    described = run("configs", "--describe", "--entity-type", "topics", "--entity-name", "tools.throttled")
    assert "leader.replication.throttled.replicas" in described
    cluster.wait_in_sync("tools.throttled", 2, 3)
    finished = eventually(
        lambda: (text := run("reassign-partitions", "--verify", *move)) and "is completed" in text and text
    )
    assert "Clearing broker-level throttles" in finished
    described = run("configs", "--describe", "--entity-type", "topics", "--entity-name", "tools.throttled")
    assert "throttled.replicas" not in described
