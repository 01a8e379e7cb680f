"""Brokers that replicate: the data path of several nodes over real sockets, cluster images made by hand, and a
controller that says yes to every change of the in-sync replicas unless told otherwise."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pylogd.broker.replicas.isr_changes import IsrChanges
from pylogd.metadata.registrations import Broker, Endpoint, Partition, Topic
from pylogd.protocol.errors import ErrorCode
from pylogd.replication.fetchers import Fetchers
from pylogd.replication.in_sync import Standing
from pylogd.replication.replicas import Replicas
from pylogd.storage.log_config import LogConfig

from support.datanode import DataNode
from support.wait import eventually


class AgreeingController:
    """Answers AlterPartition with what was asked for, or with the next of `refusals`."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.refusals: list[ErrorCode] = []

    async def send(self, request: Any, version: int | None = None, context: Any = None) -> Any:
        from pylogd.protocol.messages import alter_partition as m

        self.asked.append(request)
        topics = []
        for topic in request.topics:
            answers = []
            for data in topic.partitions:
                answer = m.ResponsePartitionData(partition_index=data.partition_index)
                if self.refusals:
                    answer.error_code = int(self.refusals.pop(0))
                else:
                    answer.leader_id = request.broker_id
                    answer.leader_epoch = data.leader_epoch
                    answer.partition_epoch = data.partition_epoch + 1
                    answer.isr = [member.broker_id for member in data.new_isr_with_epochs]
                answers.append(answer)
            topics.append(m.ResponseTopicData(topic_id=topic.topic_id, partitions=answers))
        return m.AlterPartitionResponse(topics=topics)


class ReplicaNode(DataNode):
    def __init__(self, broker_id: int, directory: Path, **properties: str) -> None:
        self.broker_id = broker_id
        self.broker_epoch = 100 + broker_id
        directory.mkdir(parents=True, exist_ok=True)
        super().__init__(directory, node_id=str(broker_id), **properties)

    def _start(self) -> int:
        self.channel = AgreeingController()  # type: ignore[assignment]
        self.fetchers = Fetchers(self.host, self.metadata, lambda: self.broker_epoch)
        self.isr_changes = IsrChanges(self.host, self.channel, lambda: self.broker_epoch)
        self.replicas = Replicas(
            self.broker_id,
            self.loop,
            clock=self.clock,
            standing=self.standing,
            lag_ms_max=self.config["replica.lag.time.max.ms"],
            propose=self.isr_changes.propose,
            follower_flushed=self.fetchers.flushed,
        )
        self.isr_changes.watch(self.replicas)
        port = super()._start()
        self.image.brokers.clear()
        return port

    def standing(self, broker_id: int) -> Standing | None:
        broker = self.image.brokers.get(broker_id)
        return None if broker is None or broker.fenced else Standing(broker.epoch, broker.is_active)

    def assign(self, topic: str, registered: Partition, **config: Any) -> None:
        """Take the role the cluster gives this broker in partition 0 of `topic`."""
        topic_id = topic.encode().ljust(16, b"\0")[:16]
        known = self.image.topics.get(topic)
        if known is None:
            known = self.image.topics[topic] = self.image.topics_by_id[topic_id] = Topic(topic, topic_id)
        known.partitions[:] = [registered]
        replica = self.replicas.get(topic, 0)
        if self.broker_id not in registered.replicas:
            if replica is not None:
                self.replicas.remove(topic, 0)
                self.fetchers.remove((topic_id, 0))
            return
        if replica is None:
            log = self.logs.create(topic, 0, topic_id=topic_id, config=LogConfig(**config))
            replica = self.replicas.add(topic, 0, topic_id, log)
        epoch, isr = registered.leader_epoch, registered.isr
        if registered.leader == self.broker_id:
            replica.become_leader(epoch, isr, registered.replicas, registered.partition_epoch)
        else:
            replica.become_follower(epoch, registered.leader, isr, registered.replicas, registered.partition_epoch)
        self.fetchers.update(replica)

    def close(self) -> None:
        self.call(self.fetchers.close)
        asyncio.run_coroutine_threadsafe(self.isr_changes.stop(), self.loop).result(30)
        super().close()


class ReplicaCluster:
    """Nodes that know each other."""

    def __init__(self, directory: Path, count: int, **properties: str) -> None:
        self.nodes = {n: ReplicaNode(n, directory / f"node-{n}", **properties) for n in range(1, count + 1)}
        self.partitions: dict[str, SimpleNamespace] = {}
        for node in self.nodes.values():
            node.call(self._introduce, node)

    def _introduce(self, node: ReplicaNode, fenced: tuple[int, ...] = ()) -> None:
        for other in self.nodes.values():
            endpoint = Endpoint("PLAINTEXT", "127.0.0.1", other.port)
            node.image.brokers[other.broker_id] = Broker(
                other.broker_id,
                other.broker_epoch,
                bytes(16),
                {"PLAINTEXT": endpoint},
                {},
                fenced=other.broker_id in fenced,
            )

    def fence(self, *broker_ids: int) -> None:
        for node in self.nodes.values():
            node.call(self._introduce, node, broker_ids)

    def place(
        self, topic: str, *, leader: int, isr: tuple[int, ...], epoch: int, partition_epoch: int, **config: Any
    ) -> None:
        """What the controller would have decided, told to everybody."""
        replicas = tuple(self.nodes)
        registered = Partition(replicas, (bytes(16),) * len(replicas), isr, leader, epoch, partition_epoch)
        for node in self.nodes.values():
            node.call(lambda node=node: node.assign(topic, registered, **config))

    def log(self, broker_id: int, topic: str) -> Any:
        return self.nodes[broker_id].partition(topic).log

    def wait_replicated(self, topic: str, end: int, among: tuple[int, ...] | None = None) -> None:
        for broker_id in among or tuple(self.nodes):
            eventually(lambda broker_id=broker_id: self.log(broker_id, topic).log_end_offset == end, pause_s=0.005)

    def contents(self, broker_id: int, topic: str) -> bytes:
        """The bytes of every segment, in order."""
        directory = Path(self.log(broker_id, topic).directory)
        return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))

    def close(self) -> None:
        for node in self.nodes.values():
            node.close()
