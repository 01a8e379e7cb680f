"""Groups through the loss of their coordinator: the next leader of the partition replays the log and goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import NewTopic
from pylogd.coordinators.shard.key_placement import partition_for
from pylogd.protocol.messages import metadata
from pylogd.protocol.uuids import ZERO
from support.admin import TIMEOUT_S, Admin
from support.broker import Pylogd
from support.clients import CLIENTS, Message
from support.cluster import PylogdCluster, wait_for_brokers
from support.members import LIBRARIES, Member, Members
from support.rawclient import Client
from support.scale import scaled
from support.wait import eventually

pytestmark = pytest.mark.pylogd_only

PARTITIONS = 4
SETTINGS = {
    "group.min.session.timeout.ms": "500",
    "offsets.topic.num.partitions": "4",
    "min.insync.replicas": "2",
    "broker.session.timeout.ms": "4000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "100",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PylogdCluster]:
    made = PylogdCluster(tmp_path_factory.mktemp("cluster"), 3, SETTINGS).start()
    yield made
    made.kill()


@pytest.fixture
def members(cluster: PylogdCluster, topic_name: str) -> Iterator[Members]:
    bootstrap = ",".join(node.bootstrap for node in cluster.nodes.values())
    admin = Admin(bootstrap)
    new = NewTopic(topic_name, PARTITIONS, 3)
    admin.client.create_topics([new], operation_timeout=TIMEOUT_S)[topic_name].result(TIMEOUT_S)
    # One assignor for all: a coordinator that takes over knows only the one in use, and refuses who lacks it.
    settings = {
        "session.timeout.ms": "6000",
        "max.poll.interval.ms": "60000",
        "partition.assignment.strategy": "range",
    }
    made = Members(bootstrap, f"group.{topic_name}", topic_name, PARTITIONS, settings)
    yield made
    made.stop()


def coordinator(cluster: PylogdCluster, group: str) -> Pylogd:
    """The node that leads the group's partition, as another one sees it."""
    wanted = metadata.MetadataRequestTopic(name="__consumer_offsets", topic_id=ZERO)

    def leader() -> Pylogd | None:
        for node in cluster.nodes.values():
            if not node.running:
                continue
            with Client(node.port) as client:
                answer = client.ask(metadata.MetadataRequest(topics=[wanted]), 12)
            partitions = {each.partition_index: each.leader_id for each in answer.topics[0].partitions}
            found = cluster.nodes.get(partitions.get(partition_for(group, len(partitions)), -1)) if partitions else None
            if found is not None and found.running:
                return found
        return None

    return eventually(leader)


def produce(members: Members, start: int, count: int) -> None:
    values = [
        Message(str(n).encode(), partition=partition)
        for n in range(start, start + count)
        for partition in range(PARTITIONS)
    ]
    CLIENTS[2].produce(members.bootstrap, members.topic, values)


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_group_goes_on_without_its_coordinator(cluster: PylogdCluster, members: Members, how: str) -> None:
    lose_coordinators(cluster, members, [members.start(library) for library in LIBRARIES], how)


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_group_of_both_protocols_goes_on_without_its_coordinator(
    cluster: PylogdCluster, members: Members, how: str
) -> None:
    old = members.start("kafka-python")
    members.settings.clear()  # the broker's own count
    new = [members.start("confluent-kafka", group_protocol="consumer") for _ in range(2)]
    lose_coordinators(cluster, members, [old, *new], how)


def lose_coordinators(cluster: PylogdCluster, members: Members, started: list[Member], how: str) -> None:
    """Nothing committed is lost, nothing is skipped, and nothing is read again that was committed."""
    produce(members, 0, 50)
    members.wait_shared(*started)
    members.wait_read(50 * PARTITIONS)
    total = 50
    for _ in range(scaled(test=1, soak=10)):
        lost = coordinator(cluster, members.group)
        end: Callable[[], object] = lost.kill if how == "kill" else lost.stop
        end()
        produce(members, total, 50)
        total += 50
        members.wait_read(total * PARTITIONS, timeout_s=120)
        members.wait_shared(*started, timeout_s=120)
        lost.start()
        for node in cluster.nodes.values():
            wait_for_brokers(node.port, len(cluster.nodes))
    for member in started:
        member.leave()
    members.check_counts(total)
