"""A group whose coordinator is now Apache Kafka, now pylogd: each goes on from the records the other wrote."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.clients import CLIENTS, Message
from support.cluster import MixedCluster, wait_for_brokers
from support.members import LIBRARIES, Members
from support.wait import eventually

pytestmark = [pytest.mark.jvm, pytest.mark.pylogd_only]
PARTITIONS = 3
SETTINGS = {
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.wait.max.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    made = MixedCluster(tmp_path_factory.mktemp("mixed"), SETTINGS)
    yield made
    made.stop()


class Groups:
    """One group of each protocol, reading the same topic."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        old = {"session.timeout.ms": "20000", "max.poll.interval.ms": "60000", "partition.assignment.strategy": "range"}
        self.classic = Members(bootstrap, "classic", topic, PARTITIONS, old)
        self.consumer = Members(bootstrap, "consumer", topic, PARTITIONS, {"group.protocol": "consumer"})
        self.total = 0

    def start(self) -> None:
        for library in LIBRARIES:
            self.classic.start(library)
        for _ in range(PARTITIONS):
            self.consumer.start("confluent-kafka")
        for members in (self.classic, self.consumer):
            members.wait_shared(*members.all)

    def produce(self) -> None:
        values = [
            Message(str(n).encode(), partition=partition)
            for n in range(self.total, self.total + 50)
            for partition in range(PARTITIONS)
        ]
        CLIENTS[2].produce(self.classic.bootstrap, self.classic.topic, values)
        self.total += 50
        for members in (self.classic, self.consumer):
            members.wait_read(self.total * PARTITIONS, timeout_s=90)
            members.wait_shared(*members.all, timeout_s=90)

    def assignments(self) -> list[int]:
        """How often each member was told what it has."""
        return [len(member.of("assigned")) for member in self.classic.all + self.consumer.all]

    def leave(self) -> None:
        for members in (self.classic, self.consumer):
            for member in members.all:
                member.leave()
            members.check_counts(self.total)

    def stop(self) -> None:
        self.classic.stop()
        self.consumer.stop()


def test_the_coordinator_changes_its_make(cluster: MixedCluster) -> None:
    """First the JVM broker coordinates; it is killed and one of ours takes over; that one stops and the JVM broker,
    which is back, has it again."""
    compacted = {"cleanup.policy": "compact"}
    cluster.create("__consumer_offsets", [[cluster.JVM, cluster.OURS]], compacted)
    # The records themselves are not on the broker that is killed first.
    cluster.create("t", [[cluster.OTHER]] * PARTITIONS)
    groups = Groups(cluster.bootstrap, "t")
    try:
        groups.start()
        groups.produce()
        before = groups.assignments()

        cluster.brokers[cluster.JVM].kill()
        groups.produce()
        # The groups were loaded from Kafka's records: nobody had to join again.
        assert groups.assignments() == before

        cluster.brokers[cluster.JVM].start()
        other = cluster.brokers[cluster.OTHER]
        wait_for_brokers(other.port, 3)
        eventually(lambda: _in_sync(cluster) == {cluster.JVM, cluster.OURS}, timeout_s=60)
        cluster.brokers[cluster.OURS].stop()
        groups.produce()
        assert groups.assignments() == before
        groups.leave()
    finally:
        groups.stop()


def _in_sync(cluster: MixedCluster) -> set[int]:
    return set(cluster.admin.list_topics("__consumer_offsets", 30).topics["__consumer_offsets"].partitions[0].isrs)
