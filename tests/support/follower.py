"""Broker 2 by hand: it follows partitions that a data node leads, one Fetch after the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pylogd.broker.gate.gate import Gate
from pylogd.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState

from support.datanode import DataNode
from support.produce import produce_request, records, values
from support.rawclient import Client
from support.wait import eventually


@contextmanager
def leading(directory: Path, gate: Gate | None = None) -> Iterator[DataNode]:
    """A node that leads two partitions which broker 2 follows."""
    directory.mkdir(exist_ok=True)
    made = DataNode(directory, gate)
    for name in ("t", "u"):
        made.create_topic(name)
        made.call(made.partition(name).become_leader, 1, (1, 2), (1, 2), 1)
    yield made
    made.close()


class Follower:
    """Broker 2, which has everything from the start, in a session with one request on its way."""

    def __init__(self, node: DataNode, client: Client, version: int = 18, wait_ms: int = 20_000) -> None:
        self.node, self.client, self.version, self.wait_ms = node, client, version, wait_ms
        self.ends = {name: node.partition(name).log.log_end_offset for name in ("t", "u")}
        self.session_id = self.session_epoch = 0
        self._told: dict[str, int] = {}
        self.ask(wait_ms=0)
        self.session_id = self.client.reply().session_id
        for name in ("u", "t"):
            self.produce(name, b"first")
            self.ask()
            self.receive()
        self.ask("t")

    def ask(self, *names: str, wait_ms: int | None = None) -> None:
        """Names what has changed, and `names`."""
        topics = []
        for name in dict.fromkeys([*names, *(name for name, end in self.ends.items() if self._told.get(name) != end)]):
            end = self._told[name] = self.ends[name]
            asked = FetchPartition(0, 1, end, 1 if end else -1, 0, 1 << 20)
            topics.append(FetchTopic(name, self.node.partition(name).topic_id, [asked]))
        request = FetchRequest(
            replica_state=ReplicaState(2, -1),
            max_wait_ms=self.wait_ms if wait_ms is None else wait_ms,
            min_bytes=1,
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            topics=topics,
        )
        self.session_epoch += 1
        self.client.send(request, self.version)

    def take_the_short_way(self, short: list[bool]) -> None:
        """Get a record, ask like the time before, and wait."""
        self.waits()
        self.produce("t", b"a")
        assert self.receive() == {"t": [b"a"]}
        self.ask("t")
        self.waits()
        assert short[-1]

    def receive(self) -> dict[str, list[bytes | None]]:
        """What the reply has of each topic; its records count as appended."""
        response = self.client.reply()
        assert response.error_code == 0
        found = {topic.topic_id.rstrip(b"\0").decode(): topic.partitions[0] for topic in response.responses}
        got = {name: values(data.records) for name, data in found.items()}
        for name, each in got.items():
            self.ends[name] += len(each)
        return got

    def waits(self) -> None:
        eventually(lambda: any(s.view is not None and s.view.poll is not None for s in self.sessions()), pause_s=0.001)

    def sessions(self) -> list[Any]:
        return list(self.node.sessions._sessions.values())

    def produce(self, topic: str, *written: bytes, acks: int = 1) -> None:
        with self.node.client() as producer:
            assert producer.ask(produce_request(topic, records(*written), acks=acks), 9) is not None
