"""One cluster of Apache Kafka and pylogd: a JVM controller, a JVM broker and two of ours.

Replicas follow leaders of the other make and hold the same bytes; leadership moves between them; clients do not notice.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import NewTopic
from support.cluster import MixedCluster
from support.wait import eventually

pytestmark = pytest.mark.jvm
FAST = {"replica.lag.time.max.ms": "2000", "replica.fetch.wait.max.ms": "100"}
JVM, OURS, OTHER = 1, 2, 3


class Cluster(MixedCluster):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory, FAST)

    def create(self, topic: str, *replicas: int, **config: str) -> None:  # type: ignore[override]
        """One partition whose first replica leads."""
        new = NewTopic(
            topic,
            1,
            replica_assignment=[list(replicas)],
            config={name.replace("_", "."): value for name, value in config.items()},
        )
        self.admin.create_topics([new])[topic].result(30)
        eventually(lambda: self.leader(topic) == replicas[0])

    def state(self, topic: str) -> tuple[int, set[int]]:
        try:
            described = self.admin.describe_topics(TopicCollection([topic]))[topic].result(30)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
            return -1, set()  # this broker has not heard of it yet
        partition = described.partitions[0]
        return (-1 if partition.leader is None else partition.leader.id), {node.id for node in partition.isr}

    def leader(self, topic: str) -> int:
        return self.state(topic)[0]

    def produce(self, topic: str, values: list[bytes]) -> None:
        """All acknowledged by every replica in sync."""
        failed: list[KafkaError] = []
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 1}
        )
        for value in values:
            producer.produce(topic, value, on_delivery=lambda error, _: failed.append(error) if error else None)
            producer.poll(0)
        assert producer.flush(60) == 0
        assert failed == []

    def consume(self, topic: str, count: int) -> list[bytes]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "none",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        found: list[bytes] = []
        while len(found) < count:
            message = consumer.poll(30)
            assert message is not None, f"{len(found)} of {count}"
            assert message.error() is None, message.error()
            found.append(message.value())
        consumer.close()
        return found

    def bytes_of(self, broker_id: int, topic: str) -> bytes:
        directory = self.brokers[broker_id].data / f"{topic}-0"
        return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("mixed"))
    yield made
    made.stop()


def numbered(first: int, count: int, size: int = 200) -> list[bytes]:
    return [(b"%08d" % n).ljust(size, b".") for n in range(first, first + count)]


@pytest.mark.parametrize("replicas", [(JVM, OURS, OTHER), (OURS, JVM, OTHER)], ids=["jvm leads", "pylogd leads"])
def test_every_replica_holds_the_leaders_bytes(cluster: Cluster, replicas: tuple[int, ...]) -> None:
    topic = f"bytes-{replicas[0]}"
    cluster.create(topic, *replicas, min_insync_replicas="3")
    sent = numbered(0, 3000)
    cluster.produce(topic, sent)
    assert cluster.consume(topic, 3000) == sent
    contents = {broker_id: cluster.bytes_of(broker_id, topic) for broker_id in replicas}
    assert len(contents[JVM]) > 500_000
    assert contents[OURS] == contents[JVM]
    assert contents[OTHER] == contents[JVM]


@pytest.mark.parametrize(("first", "second"), [(JVM, OURS), (OURS, JVM)], ids=["jvm dies", "pylogd dies"])
def test_the_other_make_takes_over_when_a_leader_is_killed(cluster: Cluster, first: int, second: int) -> None:
    topic = f"takeover-{first}"
    cluster.create(topic, first, second, OTHER, min_insync_replicas="2")
    before = numbered(0, 1000)
    cluster.produce(topic, before)
    cluster.brokers[first].kill()
    after = numbered(1000, 1000)
    cluster.produce(topic, after)
    assert cluster.leader(topic) in (second, OTHER)
    assert cluster.consume(topic, 2000) == before + after
    cluster.brokers[first].start()
    eventually(lambda: cluster.state(topic)[1] == {first, second, OTHER}, timeout_s=60)
    last = numbered(2000, 100)
    cluster.produce(topic, last)
    assert cluster.bytes_of(first, topic) == cluster.bytes_of(second, topic) == cluster.bytes_of(OTHER, topic)


def test_a_clean_stop_hands_leadership_over(cluster: Cluster) -> None:
    cluster.create("handover", OURS, JVM, min_insync_replicas="1")
    cluster.produce("handover", numbered(0, 100))
    cluster.brokers[OURS].stop()
    eventually(lambda: cluster.state("handover") == (JVM, {JVM}))
    cluster.produce("handover", numbered(100, 100))
    cluster.brokers[OURS].start()
    eventually(lambda: cluster.state("handover")[1] == {JVM, OURS}, timeout_s=60)
    assert cluster.consume("handover", 200) == numbered(0, 200)
