"""Too few replicas of a group's partition are in sync: its members go on, only what has to be written is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages import consumer_group_heartbeat as beat
from pylogd.protocol.messages import join_group, offset_commit, sync_group
from support.datanode import DataNode


@pytest.fixture
def node(tmp_path: Path) -> Iterator[DataNode]:
    made = DataNode(tmp_path, group_initial_rebalance_delay_ms="0")
    made.create_topic("t", 3)
    made.image.features["group.version"] = 1
    made.coordinate(min_insync_replicas=2)
    yield made
    made.close()


def lose_a_replica(node: DataNode) -> None:
    node.call(node.partition("__consumer_offsets").become_leader, 0, (1,), (1, 2), 1)


def take_timer(node: DataNode, *name: str) -> bool:
    """Was this timer set? It no longer is."""
    timers = node.groups.shards.by_partition[0].timers
    was_set = name in timers
    node.call(timers.cancel, name)
    return was_set


def test_a_heartbeat_counts_whether_or_not_it_brings_something_to_write(node: DataNode) -> None:
    with node.client() as client:
        joined = client.ask(beat.ConsumerGroupHeartbeatRequest("g", "a", 0, None, None, 60_000, ["t"], None, None, []))
        assert joined.error_code == ErrorCode.NONE
        lose_a_replica(node)
        quiet = beat.ConsumerGroupHeartbeatRequest("g", "a", joined.member_epoch)
        loud = beat.ConsumerGroupHeartbeatRequest("g", "a", joined.member_epoch, subscribed_topic_names=["u"])
        for request, code in ((quiet, ErrorCode.NONE), (loud, ErrorCode.COORDINATOR_NOT_AVAILABLE)):
            assert take_timer(node, "session", "g", "a")
            assert client.ask(request).error_code == code
        assert take_timer(node, "session", "g", "a")


def test_members_of_a_classic_group_join_again_and_what_they_commit_is_a_sign_of_life(node: DataNode) -> None:
    protocols = [join_group.JoinGroupRequestProtocol("range", b"")]
    request = join_group.JoinGroupRequest("g", 10_000, 10_000, protocol_type="c", protocols=protocols)
    with node.client() as client:
        joined = client.ask(request, 3)
        request.member_id = joined.member_id
        given = [sync_group.SyncGroupRequestAssignment(joined.member_id, b"x")]
        sync = sync_group.SyncGroupRequest("g", joined.generation_id, joined.member_id, assignments=given)
        assert client.ask(sync, 3).error_code == ErrorCode.NONE
        lose_a_replica(node)
        places = [offset_commit.OffsetCommitRequestPartition(0, 1)]
        topics = [offset_commit.OffsetCommitRequestTopic("t", partitions=places)]
        commit = offset_commit.OffsetCommitRequest("g", joined.generation_id, joined.member_id, topics=topics)
        for _ in range(2):
            assert take_timer(node, "heartbeat", "g", joined.member_id)
            refused = client.ask(commit, 9).topics[0].partitions[0]
            assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert take_timer(node, "heartbeat", "g", joined.member_id)
        again = client.ask(request, 3)
        assert (again.error_code, again.generation_id) == (ErrorCode.NONE, 2)
        sync.generation_id = 2
        assert client.ask(sync, 3).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
