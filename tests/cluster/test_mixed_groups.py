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


def produce(members: Members, start: int, count: int) -> int:
    values = [
        Message(str(n).encode(), partition=partition)
        for n in range(start, start + count)
        for partition in range(PARTITIONS)
    ]
    CLIENTS[2].produce(members.bootstrap, members.topic, values)
    return start + count


def test_the_coordinator_changes_its_make(cluster: MixedCluster) -> None:
    """First the JVM broker coordinates; it is killed and one of ours takes over; that one stops and the JVM broker,
    which is back, has it again."""
    compacted = {"cleanup.policy": "compact"}
    cluster.create("__consumer_offsets", [[cluster.JVM, cluster.OURS]], compacted)
    # The records themselves are not on the broker that is killed first.
    cluster.create("t", [[cluster.OTHER]] * PARTITIONS)
    settings = {"session.timeout.ms": "20000", "partition.assignment.strategy": "range"}
    members = Members(cluster.bootstrap, "g", "t", PARTITIONS, {**settings, "max.poll.interval.ms": "60000"})
    try:
        started = [members.start(library) for library in LIBRARIES]
        members.wait_shared(*started)
        total = produce(members, 0, 50)
        members.wait_read(total * PARTITIONS)
        generations = [len(member.of("assigned")) for member in started]

        cluster.brokers[cluster.JVM].kill()
        total = produce(members, total, 50)
        members.wait_read(total * PARTITIONS, timeout_s=90)
        members.wait_shared(*started, timeout_s=90)
        # The group was loaded from Kafka's records: nobody had to join again.
        assert [len(member.of("assigned")) for member in started] == generations

        cluster.brokers[cluster.JVM].start()
        other = cluster.brokers[cluster.OTHER]
        wait_for_brokers(other.port, 3)
        eventually(lambda: _in_sync(cluster) == {cluster.JVM, cluster.OURS}, timeout_s=60)
        cluster.brokers[cluster.OURS].stop()
        total = produce(members, total, 50)
        members.wait_read(total * PARTITIONS, timeout_s=90)
        members.wait_shared(*started, timeout_s=90)
        assert [len(member.of("assigned")) for member in started] == generations
        for member in started:
            member.leave()
        members.check_counts(total)
    finally:
        members.stop()


def _in_sync(cluster: MixedCluster) -> set[int]:
    return set(cluster.admin.list_topics("__consumer_offsets", 30).topics["__consumer_offsets"].partitions[0].isrs)
