"""An OffsetCommit that takes the short way must be answered, byte for byte, as the full way would answer it, and must
leave the same offsets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pylogd.broker.commit.commit_template import RepeatedCommits
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages import join_group, offset_commit, offset_fetch
from support.datanode import DataNode
from support.rawclient import Client
from support.wait import eventually

GROUP = "readers"
VERSIONS = [6, 7, 8, 9, 10]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[DataNode]:
    made = DataNode(tmp_path)
    made.create_topic("orders", 3)
    made.create_topic("payments", 2)
    made.coordinate()
    yield made
    made.close()


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each request that was compared with remembered ones was like one of them."""
    taken: list[bool] = []
    run = RepeatedCommits.run

    def watched(self: RepeatedCommits, view: memoryview, start: int, *arguments: Any) -> int:
        done = run(self, view, start, *arguments)
        taken.append(done > start)
        return done

    monkeypatch.setattr(RepeatedCommits, "run", watched)
    return taken


def commit(node: DataNode, *places: tuple[str, int, int], generation: int = -1, metadata: str = "") -> Any:
    topics: dict[str, list[Any]] = {}
    for topic, index, offset in places:
        asked = offset_commit.OffsetCommitRequestPartition(index, offset, 4, metadata)
        topics.setdefault(topic, []).append(asked)
    return offset_commit.OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=generation,
        topics=[
            offset_commit.OffsetCommitRequestTopic(name, node.image.topics[name].id, partitions)
            for name, partitions in topics.items()
        ],
    )


def codes(response: Any) -> list[ErrorCode]:
    return [ErrorCode(each.error_code) for topic in response.topics for each in topic.partitions]


def committed(client: Client) -> dict[tuple[str, int], tuple[int, int, str]]:
    request = offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup(GROUP, topics=None)])
    (group,) = client.ask(request, 9).groups
    return {
        (topic.name, each.partition_index): (each.committed_offset, each.committed_leader_epoch, each.metadata)
        for topic in group.topics
        for each in topic.partitions
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_offsets_and_replies_are_those_of_the_full_way(node: DataNode, short: list[bool], version: int) -> None:
    with node.client() as client, node.client() as other:
        replies = []
        for offset in (5, 6, 2**40):
            request = commit(node, ("orders", 0, offset), ("orders", 2, offset + 1), ("payments", 1, 0), metadata="now")
            client.send(request, version)
            replies.append(client.frame()[4:])
        assert short == [True, True]
        other.send(request, version)
        assert {*replies, other.frame()[4:]} == {replies[0]}
    with node.client() as client:
        assert committed(client) == {
            ("orders", 0): (2**40, 4, "now"),
            ("orders", 2): (2**40 + 1, 4, "now"),
            ("payments", 1): (0, 4, "now"),
        }


def test_another_request_of_the_same_length_takes_the_full_way(node: DataNode, short: list[bool]) -> None:
    with node.client() as client:
        for place in (("orders", 0, 1), ("orders", 1, 2), ("orders", 0, 3)):
            assert codes(client.ask(commit(node, place), 9)) == [ErrorCode.NONE]
        assert short == [False, False]
        assert codes(client.ask(commit(node, ("orders", 0, 4), metadata="m"), 9)) == [ErrorCode.NONE]
        assert committed(client) == {("orders", 0): (4, 4, "m"), ("orders", 1): (2, 4, "")}


def test_the_group_decides_every_time(node: DataNode, short: list[bool]) -> None:
    """A request like one that was accepted is refused when the group has changed, and is not remembered."""
    with node.client() as client:
        request = commit(node, ("orders", 0, 1))
        assert codes(client.ask(request, 9)) == [ErrorCode.NONE]
        state = node.groups.shards.by_partition[0].state
        group = state.groups[GROUP]
        empty = group.state
        node.call(setattr, group, "state", type(empty).STABLE)
        assert codes(client.ask(request, 9)) == [ErrorCode.UNKNOWN_MEMBER_ID]
        node.call(setattr, group, "state", empty)
        assert codes(client.ask(request, 9)) == [ErrorCode.NONE]
        assert short == [True, True]
        wrong = commit(node, ("orders", 0, 1), generation=3)
        assert [codes(client.ask(wrong, 9)) for _ in range(2)] == [[ErrorCode.UNKNOWN_MEMBER_ID]] * 2
        assert short[2:] == [False, False]


def test_a_deleted_topic(node: DataNode, short: list[bool]) -> None:
    with node.client() as client:
        request = commit(node, ("orders", 0, 1))
        for _ in range(2):
            assert codes(client.ask(request, 9)) == [ErrorCode.NONE]

        def delete() -> None:
            del node.image.topics_by_id[node.image.topics.pop("orders").id]
            node.image.offset += 1

        node.call(delete)
        assert codes(client.ask(request, 9)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert short == [True, False]


def test_a_coordinator_that_moved_away(node: DataNode, short: list[bool]) -> None:
    with node.client() as client:
        request = commit(node, ("orders", 0, 1))
        for _ in range(2):
            assert codes(client.ask(request, 9)) == [ErrorCode.NONE]
        node.call(node.partition("__consumer_offsets").become_follower, 1, 2, (2,))
        assert codes(client.ask(request, 9)) == [ErrorCode.NOT_COORDINATOR]
        assert short == [True, False]


def test_a_commit_that_is_not_replicated_in_time(node: DataNode, short: list[bool]) -> None:
    with node.client() as client:
        request = commit(node, ("orders", 0, 1))
        assert codes(client.ask(request, 9)) == [ErrorCode.NONE]
        node.groups.shards.by_partition[0].commit_timeout_ms = 1
        partition = node.partition("__consumer_offsets")
        node.call(partition.become_leader, 0, (1, 2), (1, 2), 1)
        assert codes(client.ask(request, 9)) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        assert short == [True]


def test_a_commit_that_waits_when_the_coordinator_is_another_one(node: DataNode, short: list[bool]) -> None:
    with node.client() as client:
        request = commit(node, ("orders", 0, 1))
        assert codes(client.ask(request, 9)) == [ErrorCode.NONE]
        partition = node.partition("__consumer_offsets")
        node.call(partition.become_leader, 0, (1, 2), (1, 2), 1)
        end = partition.log.log_end_offset
        client.send(request, 9)
        eventually(lambda: partition.log.log_end_offset > end, pause_s=0.001)
        node.call(partition.become_follower, 1, 2)
        assert codes(client.reply()) == [ErrorCode.NOT_COORDINATOR]
        assert short == [True]


def test_a_commit_that_no_batch_can_hold_is_refused_alone(node: DataNode, short: list[bool]) -> None:
    """The other groups of the partition notice nothing."""
    large = commit(node, *[("orders", 0, 1)] * 300, metadata="x" * 4000)
    with node.client() as client, node.client() as other:
        protocols = [join_group.JoinGroupRequestProtocol("range", b"")]
        other.send(join_group.JoinGroupRequest("others", 10_000, 10_000, protocol_type="c", protocols=protocols), 3)
        assert codes(client.ask(commit(node, ("orders", 0, 1)), 9)) == [ErrorCode.NONE]
        shard = node.groups.shards.by_partition[0]
        state = shard.state
        assert codes(client.ask(large, 9)) == [ErrorCode.UNKNOWN_SERVER_ERROR] * 300
        # One like many before it is refused the same way when the limit has become lower.
        usual = commit(node, *[("orders", index % 3, index) for index in range(12_000)])
        assert set(codes(client.ask(usual, 9))) == {ErrorCode.NONE}
        node.call(setattr, shard.partition.log.config, "max_message_bytes", 100_000)
        assert set(codes(client.ask(usual, 9))) == {ErrorCode.UNKNOWN_SERVER_ERROR}
        assert short[-1]
        assert codes(client.ask(commit(node, ("payments", 0, 7)), 9)) == [ErrorCode.NONE]
        assert shard.active
        assert shard.state is state
        assert other.reply().error_code == ErrorCode.NONE
        assert committed(client)["payments", 0] == (7, 4, "")
