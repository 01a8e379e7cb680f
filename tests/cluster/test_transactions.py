"""Transactions across brokers: the coordinator, the group's coordinator and the partitions live on different ones, of
both makes. Verification, markers and offsets travel between them; the coordinator may be lost in the middle.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pylogd.coordinators.shard.key_placement import partition_for
from support.cluster import MixedCluster, wait_for_brokers
from support.java_transactions import TransactionDriver
from support.transactional import ConfluentTransactions, TransactionalProducer, committed_offset, read
from support.wait import eventually

pytestmark = pytest.mark.jvm
JVM, OURS, OTHER = 1, 2, 3
SETTINGS = {
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.wait.max.ms": "100",
    "transaction.state.log.num.partitions": "3",
}


class Cluster(MixedCluster):
    """Partition n of `__transaction_state` is led by broker n + 1, and so is partition n of every topic; groups are
    coordinated by broker 2."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, SETTINGS)
        compacted = {"cleanup.policy": "compact"}
        self.create("__transaction_state", [[1, 2, 3], [2, 3, 1], [3, 1, 2]], compacted)
        self.create("__consumer_offsets", [[2, 3, 1]], compacted)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("mixed"))
    yield made
    made.stop()


@pytest.fixture(scope="module")
def java(cluster: Cluster) -> Iterator[TransactionDriver]:
    driver = TransactionDriver(cluster.bootstrap)
    yield driver
    driver.close()


def transactional_id(broker_id: int, stem: str) -> str:
    """One that `broker_id` coordinates."""
    return next(name for n in range(100) if partition_for(name := f"{stem}-{n}", 3) == broker_id - 1)


def run(producer: TransactionalProducer, cluster: Cluster, topic: str) -> None:
    """Commits and aborts in turn, each over all three brokers, with offsets."""
    group = f"g-{topic}"
    wanted: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    for number in range(8):
        producer.begin()
        for partition in range(3):
            value = f"{number}.{partition}".encode()
            producer.send(topic, value, partition)
            if number % 2:
                wanted[partition].append(value)
        producer.send_offsets(group, {(topic, 0): number})
        if number % 2:
            producer.commit()
        else:
            producer.abort()
    for partition in range(3):
        eventually(
            lambda p=partition: read(cluster.bootstrap, topic, committed=True, partition=p) == wanted[p],
            what=f"partition {partition}",
        )
    eventually(lambda: committed_offset(cluster.bootstrap, group, topic) == 7)


@pytest.mark.parametrize("coordinator", [JVM, OURS, OTHER], ids=["jvm", "ours", "other"])
@pytest.mark.parametrize("client", ["java", "confluent"])
def test_transactions_across_brokers(
    cluster: Cluster, java: TransactionDriver, topic_name: str, coordinator: int, client: str
) -> None:
    """Java speaks the second generation of the protocol, librdkafka the first."""
    cluster.create(topic_name, [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    name = transactional_id(coordinator, topic_name)
    producer = java.producer(name) if client == "java" else ConfluentTransactions(cluster.bootstrap, name)
    with producer:
        run(producer, cluster, topic_name)


@pytest.mark.parametrize("victim", [OURS, OTHER], ids=["ours", "other"])
def test_the_coordinator_is_lost(cluster: Cluster, java: TransactionDriver, topic_name: str, victim: int) -> None:
    """kill -9 with a transaction open, and one just committed: both are what the producer was told."""
    cluster.create(topic_name, [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    broker = cluster.brokers[victim]
    with java.producer(transactional_id(victim, topic_name)) as producer:
        producer.begin()
        for partition in range(3):
            producer.send(topic_name, b"committed", partition)
        producer.commit()
        broker.kill()
        producer.begin()
        for partition in range(3):
            producer.send(topic_name, b"aborted", partition)
        producer.abort()
        producer.begin()
        for partition in range(3):
            producer.send(topic_name, b"open", partition)
        broker.start()
        wait_for_brokers(broker.port, 3)
        producer.commit()
    for partition in range(3):
        eventually(
            lambda p=partition: (
                read(cluster.bootstrap, topic_name, committed=True, partition=p) == [b"committed", b"open"]
            ),
            what=f"partition {partition}",
        )
