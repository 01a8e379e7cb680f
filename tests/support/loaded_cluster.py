"""Three pylogd processes under load: what a test of failover or placement asks of a cluster."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pylogd.protocol.messages import alter_partition_reassignments as reassign
from pylogd.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

from support.cluster import PylogdCluster
from support.pause import is_paused, pause
from support.rawclient import Client
from support.wait import eventually

#: Quick to notice what a test does.
SETTINGS = {
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "1500",
    "replica.fetch.wait.max.ms": "100",
    "auto.leader.rebalance.enable": "false",
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
}


class LoadedCluster(PylogdCluster):
    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def create(self, topic: str, *replicas: int) -> None:
        """One partition led by the first of the replicas, known to every broker."""
        new = NewTopic(topic, 1, replica_assignment=[list(replicas or self.nodes)])
        self.admin.create_topics([new])[topic].result(30)
        eventually(lambda: all(leader >= 0 for leader, _ in self._views(topic)))

    def _views(self, topic: str) -> Iterator[tuple[int, set[int]]]:
        """(leader, in-sync replicas) as each broker that runs has it; the leader is -1 when it knows of none."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        for node in self.nodes.values():
            if node.running and not is_paused(node.pid):
                with Client(node.port) as client:
                    found = client.ask(request, 12).topics[0]
                if found.partitions:
                    yield found.partitions[0].leader_id, set(found.partitions[0].isr_nodes)
                else:
                    yield -1, set()

    def state(self, topic: str) -> tuple[int, set[int]]:
        """As the first broker that runs has it and knows of the topic."""
        return next((view for view in self._views(topic) if view != (-1, set())), (-1, set()))

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
        pid = self.nodes[broker_id].pid
        if number == signal.SIGSTOP:
            pause(pid)
        else:
            os.kill(pid, number)


class Load:
    """An idempotent producer that sends numbers until it is told to stop."""

    def __init__(self, cluster: LoadedCluster, topic: str) -> None:
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


def check(cluster: LoadedCluster, load: Load) -> None:
    """What was acknowledged is there, once and in order, in every replica."""
    acknowledged = load.stop()
    assert acknowledged == sorted(set(acknowledged))
    assert cluster.consume(load.topic, len(acknowledged)) == acknowledged
    cluster.wait_in_sync(load.topic)
    contents = {broker_id: cluster.bytes_of(broker_id, load.topic) for broker_id in cluster.nodes}
    assert contents[1] == contents[2] == contents[3]


def ask(cluster: LoadedCluster, request: Any, version: int) -> Any:
    """Any broker: it passes the request on to the active controller."""
    node = next(node for node in cluster.nodes.values() if node.running)
    with Client(node.port) as client:
        return client.ask(request, version)


def start_move(cluster: LoadedCluster, topic: str, replicas: list[int]) -> None:
    """Another set of replicas for partition 0."""
    part = reassign.ReassignablePartition(partition_index=0, replicas=replicas)
    request = reassign.AlterPartitionReassignmentsRequest(
        timeout_ms=10_000, topics=[reassign.ReassignableTopic(name=topic, partitions=[part])]
    )
    answer = ask(cluster, request, 0)
    assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (0, 0)
