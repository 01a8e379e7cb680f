"""Transactions while brokers are killed and paused: no aborted record is read, no committed one is missing, none is
read twice, and none is there in one partition only; nor do groups of both protocols miss one, or read again what they
have committed."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import NewTopic
from support.committed_group import CommittedGroup
from support.loaded_cluster import SETTINGS, LoadedCluster
from support.scale import scaled
from support.transaction_load import CommittedReader, TransactionLoad, check
from support.wait import eventually

pytestmark = pytest.mark.pylogd_only
PARTITIONS = 3
FAULTS = scaled(test=3, soak=30)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadedCluster]:
    settings = {
        **SETTINGS,
        "transaction.state.log.num.partitions": "3",
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.min.isr": "2",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    }
    made = LoadedCluster(tmp_path_factory.mktemp("transactions"), 3, settings)
    made.start()
    yield made
    for node in made.nodes.values():
        node.assert_alive()
        node.assert_log_clean()
        node.kill()


@pytest.mark.parametrize("fault", ["kill", "pause"])
def test_transactions_through_faults(cluster: LoadedCluster, topic_name: str, fault: str) -> None:
    new = NewTopic(topic_name, PARTITIONS, 3)
    cluster.admin.create_topics([new])[topic_name].result(30)
    eventually(lambda: cluster.state(topic_name)[0] >= 0)
    chance = random.Random(5)
    names = [f"{topic_name}.{n}" for n in range(3)]
    loads = [TransactionLoad(cluster.bootstrap, topic_name, name, PARTITIONS, seed) for seed, name in enumerate(names)]
    reader = CommittedReader(cluster.bootstrap, topic_name, PARTITIONS)
    groups = [
        CommittedGroup(cluster.bootstrap, topic_name, PARTITIONS, 2),
        CommittedGroup(cluster.bootstrap, topic_name, PARTITIONS, 2, **{"group.protocol": "consumer"}),
    ]

    def progress(more: int) -> None:
        goals = [load.done + more for load in loads]
        eventually(lambda: all(load.done >= goal for load, goal in zip(loads, goals)), timeout_s=150)

    for _ in range(FAULTS):
        progress(20)
        victim = chance.choice(list(cluster.nodes))
        node = cluster.nodes[victim]
        if fault == "kill":
            node.kill()
            progress(10)
            node.start()
        else:
            cluster.signal(victim, signal.SIGSTOP)
            try:
                progress(10)
            finally:
                cluster.signal(victim, signal.SIGCONT)
        cluster.wait_in_sync(topic_name)
    progress(10)
    for load in loads:
        load.stop()
    wanted = {value for load in loads for value in load.outcomes.committed}
    eventually(lambda: all(wanted <= set(found) for found in reader.values.values()), timeout_s=60)
    reader.stop()
    for group in groups:
        eventually(lambda: all(wanted <= set(found) for found in group.values.values()), timeout_s=90)  # noqa: B023
        group.stop()
    # From the beginning, after everything: the same.
    again = CommittedReader(cluster.bootstrap, topic_name, PARTITIONS)
    eventually(
        lambda: all(len(again.values[index]) >= len(reader.values[index]) for index in range(PARTITIONS)), timeout_s=60
    )
    again.stop()
    check(loads, reader.values)
    check(loads, again.values)
    for group in groups:
        assert group.problems == []
        check(loads, group.values)
