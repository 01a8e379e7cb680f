"""Three real processes, replication factor 3, min.insync.replicas 2: brokers and controllers are killed, paused and
restarted under an idempotent producer, and nothing acknowledged is lost, doubled or out of order."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from pylogd.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from support.cluster import PylogdCluster
from support.jvm import ToolHost
from support.produce import produce_request, records
from support.rawclient import Client
from support.tools import Tools
from support.wait import eventually

SETTINGS = {
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "1500",
    "replica.fetch.wait.max.ms": "100",
    "auto.leader.rebalance.enable": "false",
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
}


class Cluster(PylogdCluster):
    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def create(self, topic: str, *replicas: int) -> None:
        """One partition led by the first of the replicas."""
        new = NewTopic(topic, 1, replica_assignment=[list(replicas or self.nodes)])
        self.admin.create_topics([new])[topic].result(30)
        eventually(lambda: self.state(topic)[0] >= 0)

    def state(self, topic: str) -> tuple[int, set[int]]:
        """(leader, in-sync replicas) as some broker that runs has it; the leader is -1 when it knows of none."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        for node in self.nodes.values():
            if node.running and not self.paused(node.pid):
                with Client(node.port) as client:
                    found = client.ask(request, 12).topics[0]
                if found.partitions:
                    return found.partitions[0].leader_id, set(found.partitions[0].isr_nodes)
        return -1, set()

    @staticmethod
    def paused(pid: int) -> bool:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def wait_in_sync(self, topic: str, *members: int) -> None:
        eventually(lambda: self.state(topic)[1] == set(members or self.nodes), timeout_s=60)

    def consume(self, topic: str, count: int) -> list[bytes]:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "none", "enable.auto.commit": False})
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        found: list[bytes] = []
        while len(found) < count:
            message = consumer.poll(30)
            assert message is not None, f"{len(found)} of {count}"
            assert message.error() is None, message.error()
            found.append(message.value())
        assert consumer.poll(0.3) is None, "more than was sent"
        consumer.close()
        return found

    def bytes_of(self, broker_id: int, topic: str) -> bytes:
        directory = self.nodes[broker_id].data / f"{topic}-0"
        return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))

    def signal(self, broker_id: int, number: int) -> None:
        os.kill(self.nodes[broker_id].pid, number)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"), 3, SETTINGS)
    made.start()
    yield made
    for node in made.nodes.values():
        # With the majority goes the controller that would let the last one leave in good order.
        node.assert_alive()
        node.assert_log_clean()
        node.kill()


class Load:
    """An idempotent producer that sends numbers until it is told to stop."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.topic = topic
        self.acknowledged: list[bytes] = []
        self.failed: list[KafkaError] = []
        self._sent = 0
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 1,
                "retry.backoff.ms": 20,
                "request.timeout.ms": 3000,
                "socket.timeout.ms": 4000,  # a paused broker keeps its connections
                "delivery.timeout.ms": 60_000,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            value = b"%08d" % self._sent
            self._sent += 1
            self._producer.produce(self.topic, value, on_delivery=self._delivered)
            self._producer.poll(0.001)

    def _delivered(self, error: KafkaError | None, message: object) -> None:
        if error is not None:
            self.failed.append(error)
        else:
            self.acknowledged.append(message.value())  # type: ignore[attr-defined]

    def wait_for(self, more: int) -> None:
        """Until so many more are acknowledged."""
        goal = len(self.acknowledged) + more
        eventually(lambda: len(self.acknowledged) >= goal, timeout_s=60)

    def stop(self) -> list[bytes]:
        self._stop.set()
        self._thread.join(30)
        assert self._producer.flush(60) == 0
        assert self.failed == []
        return self.acknowledged


def check(cluster: Cluster, load: Load) -> None:
    """What was acknowledged is there, once and in order, in every replica."""
    acknowledged = load.stop()
    assert acknowledged == sorted(set(acknowledged))
    assert cluster.consume(load.topic, len(acknowledged)) == acknowledged
    cluster.wait_in_sync(load.topic)
    contents = {broker_id: cluster.bytes_of(broker_id, load.topic) for broker_id in cluster.nodes}
    assert contents[1] == contents[2] == contents[3]


def test_a_killed_leader_costs_nothing_that_was_acknowledged(cluster: Cluster) -> None:
    cluster.create("killed-leader")
    load = Load(cluster, "killed-leader")
    for _ in range(3):
        load.wait_for(200)
        leader = cluster.state("killed-leader")[0]
        cluster.nodes[leader].kill()
        load.wait_for(200)
        cluster.nodes[leader].start()
        cluster.wait_in_sync("killed-leader")
    check(cluster, load)


def test_a_killed_controller_does_not_stop_the_data(cluster: Cluster) -> None:
    cluster.create("killed-controller")
    load = Load(cluster, "killed-controller")
    load.wait_for(200)
    active = cluster.active_controller()
    cluster.nodes[active].kill()
    load.wait_for(200)
    assert cluster.active_controller() != active
    cluster.create("after-controller")
    cluster.nodes[active].start()
    cluster.wait_in_sync("killed-controller")
    check(cluster, load)


def test_a_paused_follower_leaves_the_isr_and_comes_back(cluster: Cluster) -> None:
    cluster.create("paused-follower")
    load = Load(cluster, "paused-follower")
    load.wait_for(100)
    leader, active = cluster.state("paused-follower")[0], cluster.active_controller()
    paused = next(n for n in cluster.nodes if n not in (leader, active))
    cluster.signal(paused, signal.SIGSTOP)
    try:
        cluster.wait_in_sync("paused-follower", *(n for n in cluster.nodes if n != paused))
        load.wait_for(100)
    finally:
        cluster.signal(paused, signal.SIGCONT)
    check(cluster, load)


def test_a_paused_leader_is_replaced_and_its_late_writes_are_refused(cluster: Cluster) -> None:
    active = cluster.active_controller()
    first = next(n for n in cluster.nodes if n != active)
    cluster.create("paused-leader", first, *(n for n in cluster.nodes if n != first))
    load = Load(cluster, "paused-leader")
    load.wait_for(100)
    cluster.signal(first, signal.SIGSTOP)
    try:
        load.wait_for(100)  # after the session of the silent leader has run out
        assert cluster.state("paused-leader")[0] != first
    finally:
        cluster.signal(first, signal.SIGCONT)
    check(cluster, load)


def test_a_leader_that_was_alone_is_cut_back_to_the_new_history(cluster: Cluster) -> None:
    active = cluster.active_controller()
    alone = next(n for n in cluster.nodes if n != active)
    others = [n for n in cluster.nodes if n != alone]
    cluster.create("diverged", alone, *others)
    node = cluster.nodes[alone]
    with Client(node.port) as client:
        assert client.ask(produce_request("diverged", records(b"common")), 9).responses
        for other in others:
            cluster.signal(other, signal.SIGSTOP)
        try:
            for n in range(50):
                # The first of these may still reach a follower's socket; the others reach nobody.
                client.ask(produce_request("diverged", records(b"alone %d" % n), acks=1), 9)
        finally:
            node.kill()
            for other in others:
                cluster.signal(other, signal.SIGCONT)
    eventually(lambda: cluster.state("diverged")[0] in others, timeout_s=60)
    load = Load(cluster, "diverged")
    load.wait_for(100)
    load.stop()
    node.start()
    cluster.wait_in_sync("diverged")
    assert cluster.bytes_of(alone, "diverged") == cluster.bytes_of(others[0], "diverged")
    assert b"alone 49" not in cluster.bytes_of(alone, "diverged")


def test_a_clean_restart_of_every_broker_is_not_noticed(cluster: Cluster) -> None:
    cluster.create("rolling")
    load = Load(cluster, "rolling")
    for node in cluster.nodes.values():
        load.wait_for(100)
        node.restart()
        cluster.wait_in_sync("rolling")
    check(cluster, load)


@pytest.mark.jvm
def test_kafkas_tool_lists_what_is_under_replicated(cluster: Cluster, tools: ToolHost) -> None:
    cluster.create("listed")
    down = next(n for n in cluster.nodes if n != cluster.active_controller())
    kafka_tools = Tools(tools, cluster.bootstrap)
    assert "listed" not in kafka_tools.run("topics", "--describe", "--under-replicated-partitions")
    cluster.nodes[down].kill()
    cluster.wait_in_sync("listed", *(n for n in cluster.nodes if n != down))
    assert "Topic: listed" in kafka_tools.run("topics", "--describe", "--under-replicated-partitions")
    cluster.nodes[down].start()
    cluster.wait_in_sync("listed")
    assert "Topic: listed" not in kafka_tools.run("topics", "--describe", "--under-replicated-partitions")
