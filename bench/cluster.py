"""Three nodes as one cluster, each broker and controller, of one make: what the rows of replication run on.

To the loads it looks like one broker: the port is that of the first node, which leads what the rows measure, and CPU
and memory are those of all three. One cluster runs at a time, on all cores.
"""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from support.cluster import quorum_of
from support.daemon import HOST
from support.jvm import tool_command
from support.wire import broker_count

from bench.brokers import PROPERTIES, Broker, Kafka, Pylogd

NODES = 3
REPLICATED = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "auto.leader.rebalance.enable": "false",
}


class KafkaNode(Kafka):
    """One of three voters that are listed in the configuration."""

    cluster_id = ""

    def prepare(self) -> None:
        properties = self.write_properties()
        if (self.data / "meta.properties").exists():
            return
        format_ = ["format", f"--cluster-id={self.cluster_id}", "-c", str(properties)]
        subprocess.run(tool_command("kafka.tools.StorageTool", *format_), check=True, capture_output=True, timeout=120)


class Cluster:
    def __init__(self, kind: str, directory: Path) -> None:
        self.label = "Kafka" if kind == "kafka" else "pylogd"
        make: type[Kafka] | type[Pylogd] = KafkaNode if kind == "kafka" else Pylogd
        self.nodes: dict[int, Broker] = {
            n: make(directory / f"node-{n}", {**PROPERTIES, **REPLICATED}, n) for n in range(1, NODES + 1)
        }
        servers = [f"{HOST}:{node.controller_port}" for node in self.nodes.values()]
        cluster_id = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=").replace("-", "a")
        for node in self.nodes.values():
            if isinstance(node, KafkaNode):
                node.cluster_id = cluster_id
                voters = ",".join(f"{n}@{server}" for n, server in zip(self.nodes, servers))
                node.extra |= {"controller.quorum.voters": voters, "controller.quorum.bootstrap.servers": ""}
            else:
                node.extra["controller.quorum.bootstrap.servers"] = ",".join(servers)

    def start(self) -> None:
        for node in self.nodes.values():
            node.launch()
        for node in self.nodes.values():
            node.wait_until_ready()
        for node in self.nodes.values():
            until(lambda node=node: broker_count(HOST, node.port) == NODES)
        until(lambda: (quorum := quorum_of(self.nodes.values())) and len(quorum.current_voters) == NODES)

    @property
    def port(self) -> int:
        return self.nodes[1].port

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    def cpu_seconds(self) -> float:
        return sum(node.cpu_seconds() for node in self.nodes.values())

    def resident_mb(self) -> float:
        return sum(node.resident_mb() for node in self.nodes.values())

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def create(self, topic: str, partitions: int, leader: int = 1) -> None:
        """Every partition is led by one node and replicated to all."""
        replicas = [leader, *(n for n in self.nodes if n != leader)]
        admin = self.admin()
        new = NewTopic(topic, partitions, replica_assignment=[replicas] * partitions)
        admin.create_topics([new])[topic].result(60)
        until(lambda: self.in_sync(admin, topic) == partitions)

    def in_sync(self, admin: AdminClient, topic: str) -> int:
        """How many partitions have all their replicas in sync."""
        known = admin.list_topics(topic, timeout=30).topics[topic].partitions.values()
        return sum(len(part.isrs) == NODES for part in known)

    def active_controller(self) -> int:
        until(lambda: quorum_of(self.nodes.values()) is not None)
        return int(quorum_of(self.nodes.values()).leader_id)

    def restart(self, node_id: int, topic: str, partitions: int = 1) -> None:
        """Brings a killed node back and waits until it has caught up."""
        self.nodes[node_id].kill()  # nothing is left of it for `launch` to trip over
        self.nodes[node_id].launch()
        admin = self.admin()
        until(lambda: self.in_sync(admin, topic) == partitions, 300)

    def stop(self) -> None:
        for node in self.nodes.values():
            node.kill()


@contextmanager
def cluster(kind: str, directory: Path) -> Iterator[Cluster]:
    made = Cluster(kind, directory)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        shutil.rmtree(directory, ignore_errors=True)


def until(true: Any, timeout_s: float = 120) -> None:
    deadline = time.perf_counter() + timeout_s
    while not true():
        if time.perf_counter() > deadline:
            raise RuntimeError("the cluster does not get there")
        time.sleep(0.01)
