"""A follower's Fetch that takes the short way must be answered, byte for byte, as the full way would answer it, and
must move the watermark as that would."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pylogd.broker.fetch.fetch_template import RepeatedFetches
from pylogd.protocol.errors import ErrorCode
from support.datanode import DataNode
from support.follower import Follower, leading
from support.produce import produce_request, records
from support.rawclient import Client
from support.wait import eventually

VERSIONS = [15, 16, 17, 18]
#: Where a reply's frame has the id of its session, which is drawn by lot.
SESSION_ID = slice(11, 15)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[DataNode]:
    with leading(tmp_path) as made:
        yield made


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each request that was compared with remembered ones was like one of them."""
    taken: list[bool] = []
    run = RepeatedFetches.run

    def watched(self: RepeatedFetches, view: memoryview, start: int, *arguments: Any) -> int:
        done = run(self, view, start, *arguments)
        taken.append(done > start)
        return done

    monkeypatch.setattr(RepeatedFetches, "run", watched)
    return taken


@pytest.fixture
def client(node: DataNode) -> Iterator[Client]:
    with node.client() as made:
        yield made


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
    monkeypatch.setattr(RepeatedFetches, "run", lambda self, view, start, *arguments: start)
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
