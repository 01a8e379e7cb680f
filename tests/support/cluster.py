"""Several broker processes as one cluster: pylogd's, Kafka's, or both."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from pylogd.protocol.messages import describe_quorum

from support.broker import Pylogd
from support.daemon import HOST, Daemon
from support.kafka import ApacheKafka
from support.rawclient import Client
from support.wait import eventually
from support.wire import broker_count


def _controller_properties(daemon: Daemon) -> dict[str, str]:
    return {
        "process.roles": "controller",
        "node.id": str(daemon.node_id),
        "listeners": f"CONTROLLER://{HOST}:{daemon.controller_port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"{HOST}:{daemon.controller_port}",
        "log.dirs": str(daemon.data),
        **daemon.extra,
    }


def _broker_properties(daemon: Daemon, controllers: str) -> dict[str, str]:
    return {
        "process.roles": "broker",
        "node.id": str(daemon.node_id),
        "listeners": f"PLAINTEXT://{HOST}:{daemon.port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{daemon.port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": controllers,
        "log.dirs": str(daemon.data),
        "offsets.topic.num.partitions": "1",
        "log.segment.delete.delay.ms": "1000",
        **daemon.extra,
    }


class KafkaController(ApacheKafka):
    """A quorum of one JVM controller."""

    def __init__(self, directory: Path, extra: dict[str, str] | None = None, node_id: int = 100) -> None:
        super().__init__(directory, extra, node_id)

    @property
    def properties(self) -> dict[str, str]:
        return _controller_properties(self)

    @property
    def address(self) -> str:
        return f"{HOST}:{self.controller_port}"

    def wait_until_ready(self) -> None:
        def ready() -> bool:
            self.assert_alive()
            return "controller activation" in self.log_text()

        eventually(ready, timeout_s=self.start_timeout_s)


class PylogdController(Pylogd):
    """A quorum of one pylogd controller."""

    @property
    def properties(self) -> dict[str, str]:
        return _controller_properties(self)

    @property
    def address(self) -> str:
        return f"{HOST}:{self.controller_port}"

    def wait_until_ready(self) -> None:
        def ready() -> bool:
            self.assert_alive()
            return "ready: node" in self.log_text()

        eventually(ready, timeout_s=self.start_timeout_s)


class PylogdBroker(Pylogd):
    """A broker without the controller role."""

    def __init__(self, directory: Path, node_id: int, controllers: str, extra: dict[str, str] | None = None) -> None:
        super().__init__(directory, extra, node_id)
        self.controllers = controllers

    @property
    def properties(self) -> dict[str, str]:
        return _broker_properties(self, self.controllers)


class KafkaBroker(ApacheKafka):
    """A JVM broker without the controller role. `cluster_id` must be the controllers'."""

    def __init__(
        self, directory: Path, node_id: int, controllers: str, cluster_id: str, extra: dict[str, str] | None = None
    ) -> None:
        super().__init__(directory, extra, node_id)
        self.controllers = controllers
        self.cluster_id = cluster_id

    @property
    def properties(self) -> dict[str, str]:
        return _broker_properties(self, self.controllers)

    def prepare(self) -> None:
        self.write_properties()
        if not (self.data / "meta.properties").exists():
            self.data.mkdir(parents=True, exist_ok=True)
            text = f"version=1\ncluster.id={self.cluster_id}\nnode.id={self.node_id}\n"
            (self.data / "meta.properties").write_text(text)


def _meta_of(daemon: Daemon, key: str) -> str:
    for line in (daemon.data / "meta.properties").read_text().splitlines():
        if line.startswith(f"{key}="):
            return line.partition("=")[2]
    raise AssertionError(f"no {key}")


def cluster_id_of(daemon: Daemon) -> str:
    return _meta_of(daemon, "cluster.id")


def directory_id_of(daemon: Daemon) -> bytes:
    return base64.urlsafe_b64decode(_meta_of(daemon, "directory.id") + "==")


def wait_for_brokers(port: int, count: int) -> None:
    """Until the broker at `port` knows of `count` living brokers."""
    eventually(lambda: broker_count(HOST, port) == count)


def quorum_of(nodes: Iterable[Daemon]) -> Any:
    """The quorum as its leader describes it, through the first node that can tell; None while there is no leader."""
    part = describe_quorum.RequestPartitionData(partition_index=0)
    topic = describe_quorum.RequestTopicData(topic_name="__cluster_metadata", partitions=[part])
    request = describe_quorum.DescribeQuorumRequest(topics=[topic])
    for node in nodes:
        if node.running:
            with Client(node.port) as client:
                answer = client.ask(request, 2)
            if answer.error_code == 0 and answer.topics[0].partitions[0].error_code == 0:
                return answer.topics[0].partitions[0]
    return None


class PylogdCluster:
    """Three combined nodes that find each other: no format step."""

    node_class = Pylogd

    def __init__(self, directory: Path, count: int = 3, extra: dict[str, str] | None = None) -> None:
        self.nodes = {n: self.node_class(directory / f"node-{n}", extra, n) for n in range(1, count + 1)}
        controllers = ",".join(f"{HOST}:{node.controller_port}" for node in self.nodes.values())
        for node in self.nodes.values():
            node.extra = {
                "controller.quorum.bootstrap.servers": controllers,
                "offsets.topic.replication.factor": str(count),
                "transaction.state.log.replication.factor": str(count),
                **node.extra,
            }

    def start(self) -> PylogdCluster:
        for node in self.nodes.values():
            node.launch()
        try:
            for node in self.nodes.values():
                node.wait_until_ready()
                wait_for_brokers(node.port, len(self.nodes))
            eventually(self.all_vote)
        except BaseException:
            self.kill()
            raise
        return self

    def kill(self) -> None:
        for node in self.nodes.values():
            node.kill()

    def quorum(self) -> Any:
        return quorum_of(self.nodes.values())

    def voters(self) -> set[int]:
        quorum = self.quorum()
        return set() if quorum is None else {voter.replica_id for voter in quorum.current_voters}

    def all_vote(self) -> bool:
        """Every node, with the directory that it has now."""
        quorum = self.quorum()
        voters = {} if quorum is None else {v.replica_id: bytes(v.replica_directory_id) for v in quorum.current_voters}
        return voters == {node_id: directory_id_of(node) for node_id, node in self.nodes.items()}

    def active_controller(self) -> int:
        return eventually(lambda: self.quorum()).leader_id

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    def stop(self) -> None:
        for node in reversed(self.nodes.values()):
            node.stop()


class MixedCluster:
    """A JVM controller; one JVM broker and two of ours."""

    JVM, OURS, OTHER = 1, 2, 3

    def __init__(self, directory: Path, settings: dict[str, str]) -> None:
        self.controller = KafkaController(
            directory / "controller", {"broker.session.timeout.ms": "4000", "auto.leader.rebalance.enable": "false"}
        )
        self.controller.start()
        where = self.controller.address
        self.brokers: dict[int, Daemon] = {
            self.JVM: KafkaBroker(directory / "jvm", self.JVM, where, cluster_id_of(self.controller), settings),
            self.OURS: PylogdBroker(directory / "ours", self.OURS, where, settings),
            self.OTHER: PylogdBroker(directory / "other", self.OTHER, where, settings),
        }
        for broker in self.brokers.values():
            broker.start()
        for broker in self.brokers.values():
            wait_for_brokers(broker.port, 3)
        self.bootstrap = ",".join(broker.bootstrap for broker in self.brokers.values())

    @property
    def admin(self) -> AdminClient:
        """A new one each time: librdkafka waits for the broker that it once took for the controller, dead or not."""
        running = ",".join(broker.bootstrap for broker in self.brokers.values() if broker.running)
        self._admin = AdminClient({"bootstrap.servers": running, "log_level": 0})  # kept: it must outlive its answers
        return self._admin

    def create(self, topic: str, replicas: list[list[int]], config: dict[str, str] | None = None) -> None:
        """Partitions whose first replica leads, known to every broker."""
        new = NewTopic(topic, len(replicas), replica_assignment=replicas, config=config or {})
        self.admin.create_topics([new])[topic].result(30)
        wanted = {index: ids[0] for index, ids in enumerate(replicas)}
        eventually(lambda: all(self.leaders(topic, broker) == wanted for broker in self.brokers.values()))

    def leaders(self, topic: str, broker: Daemon) -> dict[int, int]:
        """As one broker sees them."""
        found = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0}).list_topics(topic, 30)
        return {partition.id: partition.leader for partition in found.topics[topic].partitions.values()}

    def stop(self) -> None:
        for broker in self.brokers.values():
            if broker.running:
                broker.stop()
        self.controller.stop()
