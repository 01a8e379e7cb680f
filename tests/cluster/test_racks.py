"""A consumer that tells its rack reads from the replica there (KIP-392), and from the leader when that replica goes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from support.loaded_cluster import SETTINGS, LoadedCluster
from support.wait import eventually


@pytest.fixture
def racks(tmp_path: Path) -> Iterator[LoadedCluster]:
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    made = LoadedCluster(tmp_path, 3, {**SETTINGS, "replica.selector.class": selector})
    for node_id, node in made.nodes.items():
        node.extra["broker.rack"] = f"rack-{node_id}"
    made.start()
    yield made
    made.kill()


def test_a_consumer_reads_from_its_rack(racks: LoadedCluster) -> None:
    leader, near, other = (*(n for n in racks.nodes if n != racks.active_controller()), racks.active_controller())
    racks.create("near", leader, near, other)
    racks.wait_in_sync("near")
    producer = Producer({"bootstrap.servers": racks.bootstrap, "acks": "all", "log_level": 0})
    sent: list[bytes] = []
    seen: list[bytes] = []
    sources: list[int] = []

    def noted(text: str) -> None:
        partition = json.loads(text)["topics"].get("near", {}).get("partitions", {}).get("0")
        if partition is not None:
            sources.append(partition["broker"])

    consumer = Consumer(
        {
            "bootstrap.servers": racks.bootstrap,
            "group.id": "none",
            "client.rack": f"rack-{near}",
            "enable.auto.commit": False,
            "statistics.interval.ms": 100,
            "stats_cb": noted,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition("near", 0, OFFSET_BEGINNING)])

    def exchange() -> bool:
        """Some records there and back; consuming is also what keeps the statistics coming."""
        for _ in range(20):
            sent.append(b"%06d" % len(sent))
            producer.produce("near", sent[-1])
        assert producer.flush(60) == 0
        return read()

    def read() -> bool:
        seen.extend(message.value() for message in consumer.consume(1000, 0.5) if message.error() is None)
        return True

    eventually(lambda: exchange() and sources[-1:] == [near])
    eventually(lambda: exchange() and len(seen) > 100 and sources[-1:] == [near])
    racks.nodes[near].kill()
    reached = len(seen)
    eventually(lambda: exchange() and len(seen) > reached + 100 and sources[-1:] == [leader])
    eventually(lambda: read() and len(seen) == len(sent))
    consumer.close()
    assert seen == sent
