"""A follower's Fetch that takes the short way must be answered, byte for byte, as the full way would answer it, and
must move the watermark as that would."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pylogd.broker.fetch.fetch_template import RepeatedFetches
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from support.datanode import DataNode
from support.produce import produce_request, records, values
from support.rawclient import Client
from support.wait import eventually

VERSIONS = [15, 16, 17, 18]
#: Where a reply's frame has the id of its session, which is drawn by lot.
SESSION_ID = slice(11, 15)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[DataNode]:
    with leading(tmp_path) as made:
        yield made


@contextmanager
def leading(directory: Path) -> Iterator[DataNode]:
    """A node that leads two partitions which broker 2 follows."""
    directory.mkdir(exist_ok=True)
    made = DataNode(directory)
    for name in ("t", "u"):
        made.create_topic(name)
        made.call(made.partition(name).become_leader, 1, (1, 2), (1, 2), 1)
    yield made
    made.close()


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each request that was compared with remembered ones was like one of them."""
    taken: list[bool] = []
    run = RepeatedFetches.run

    def watched(self: RepeatedFetches, *arguments: Any) -> bool:
        taken.append(run(self, *arguments))
        return taken[-1]

    monkeypatch.setattr(RepeatedFetches, "run", watched)
    return taken


@pytest.fixture
def client(node: DataNode) -> Iterator[Client]:
    with node.client() as made:
        yield made


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


def story(node: DataNode, version: int) -> list[bytes]:
    """Records that come one after the other, and what the follower is told."""
    frames = []
    with node.client() as client, node.client() as producer:
        follower = Follower(node, client, version)
        for number in range(5):
            follower.waits()
            producer.send(produce_request("t", records(b"v%d" % number * (number * 50 + 1)), acks=-1), 9)
            frame = client.frame()
            frames.append(frame[: SESSION_ID.start] + frame[SESSION_ID.stop :])
            follower.ends["t"] += 1
            follower.ask("t")
            reply = producer.reply().responses[0].partition_responses[0]
            assert (reply.error_code, reply.base_offset) == (0, follower.ends["t"] - 1)
            assert node.partition("t").log.high_watermark == follower.ends["t"]
    return frames


@pytest.mark.parametrize("version", VERSIONS)
def test_replies_are_those_of_the_full_way(
    tmp_path: Path, short: list[bool], monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    with leading(tmp_path / "short") as node:
        replies = story(node, version)
    assert short[-5:] == [True] * 5
    monkeypatch.setattr(RepeatedFetches, "run", lambda *arguments: False)
    with leading(tmp_path / "full") as node:
        assert story(node, version) == replies


def test_a_request_that_waits_for_nothing_is_answered_in_time(
    node: DataNode, client: Client, short: list[bool]
) -> None:
    follower = Follower(node, client)
    follower.waits()
    follower.produce("t", b"a")
    assert follower.receive() == {"t": [b"a"]}
    follower.wait_ms = 30
    for _ in range(2):
        follower.ask("t")
        assert follower.receive() == {"t": []}  # only the watermark
        follower.ask()
        assert follower.receive() == {}
        follower.produce("t", b"b")
        follower.ask("t")
        assert follower.receive() == {"t": [b"b"]}
    assert True in short


def test_another_partition_that_moves_is_told_as_well(node: DataNode, client: Client, short: list[bool]) -> None:
    follower = Follower(node, client)
    follower.take_the_short_way(short)
    follower.produce("u", b"b")
    assert follower.receive() == {"u": [b"b"], "t": []}
    follower.ask("u")
    follower.waits()
    follower.produce("t", b"c")
    assert follower.receive()["t"] == [b"c"]


def test_who_leads_no_longer_says_so(node: DataNode, client: Client, short: list[bool]) -> None:
    follower = Follower(node, client)
    follower.take_the_short_way(short)
    node.call(node.partition("t").become_follower, 2, 2, (1, 2), (1, 2), 2)
    (topic,) = client.reply().responses
    assert topic.partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
    follower.ask("t")
    client.reply()
    assert not short[-1]


def test_a_follower_that_leaves_is_forgotten(node: DataNode, short: list[bool]) -> None:
    with node.client() as client:
        follower = Follower(node, client)
        follower.take_the_short_way(short)
    (session,) = follower.sessions()
    eventually(lambda: session.view.poll is None)
    follower.produce("t", b"b")
    with node.client() as client:
        Follower(node, client).waits()


def test_a_session_out_of_step_is_refused(node: DataNode, client: Client, short: list[bool]) -> None:
    follower = Follower(node, client)
    follower.waits()
    follower.produce("t", b"a")
    follower.receive()
    follower.session_epoch += 1
    follower.ask("t")
    assert client.reply().error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert not short[-1]
    assert node.partition("t").log.high_watermark < follower.ends["t"]


def test_records_that_are_not_copied_take_the_full_way(node: DataNode, client: Client) -> None:
    follower = Follower(node, client)
    follower.waits()
    follower.produce("t", b"a" * 500_000)
    assert follower.receive() == {"t": [b"a" * 500_000]}
    follower.ask("t")
    follower.waits()
    follower.produce("t", b"b")
    assert follower.receive() == {"t": [b"b"]}


def test_a_replaced_incarnation_takes_the_full_way(node: DataNode, client: Client, short: list[bool]) -> None:
    follower = Follower(node, client)
    follower.waits()
    follower.produce("t", b"a")
    follower.receive()
    node.call(setattr, node.partition("t").followers[2], "broker_epoch", 7)
    follower.ask("t")
    follower.waits()
    assert not short[-1]
