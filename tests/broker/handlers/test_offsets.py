"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pylogd.protocol import batch
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from pylogd.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pylogd.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from support.datanode import DataNode
from support.produce import fetch_request, produce_request, records
from support.rawclient import Client


@pytest.fixture
def client(node: DataNode) -> Iterator[Client]:
    with node.client() as made:
        yield made


def stamped(*timestamps: int) -> bytes:
    return bytes(batch.build_batch([batch.Record(n, ts, b"k", b"v", []) for n, ts in enumerate(timestamps)]))


def list_offsets(client: Client, timestamp: int, version: int = 11, topic: str = "t", **options: Any) -> Any:
    asked = ListOffsetsPartition(
        partition_index=options.pop("index", 0),
        timestamp=timestamp,
        current_leader_epoch=options.pop("leader_epoch", -1),
    )
    request = ListOffsetsRequest(
        replica_id=options.pop("replica_id", -1),
        isolation_level=options.pop("isolation", 0),
        topics=[ListOffsetsTopic(name=topic, partitions=[asked])],
    )
    return client.ask(request, version).topics[0].partitions[0]


def found(answer: Any) -> tuple[int, int, int]:
    return answer.offset, answer.timestamp, answer.leader_epoch


def test_special_timestamps_and_times(node: DataNode, client: Client) -> None:
    node.create_topic("t")
    for timestamps in ((1000, 1005), (3000, 2000), (2500,)):
        client.ask(produce_request("t", stamped(*timestamps)), 9)
    assert found(list_offsets(client, -1)) == (5, -1, 0)
    assert found(list_offsets(client, -2)) == (0, -1, 0)
    assert found(list_offsets(client, -3)) == (2, 3000, 0)
    assert found(list_offsets(client, -4)) == (0, -1, 0)
    assert found(list_offsets(client, -5)) == (-1, -1, -1)
    assert found(list_offsets(client, -6)) == (-1, -1, -1)
    assert found(list_offsets(client, 0)) == (0, 1000, 0)
    assert found(list_offsets(client, 1001)) == (1, 1005, 0)
    assert found(list_offsets(client, 1006)) == (2, 3000, 0)
    assert found(list_offsets(client, 3001)) == (-1, -1, -1)


@pytest.mark.parametrize(("timestamp", "since"), [(-1, 1), (-2, 1), (-3, 7), (-4, 8), (-5, 9), (-6, 11), (-7, 99)])
def test_special_timestamps_have_a_first_version(node: DataNode, client: Client, timestamp: int, since: int) -> None:
    node.create_topic("t")
    for version in range(1, 12):
        code = list_offsets(client, timestamp, version).error_code
        assert code == (ErrorCode.NONE if version >= since else ErrorCode.UNSUPPORTED_VERSION), version


def test_latest_is_what_the_client_may_read(node: DataNode, client: Client) -> None:
    node.create_topic("t")
    client.ask(produce_request("t", records(b"a")), 9)
    node.call(node.partition("t").become_leader, 1, (1, 2), (1, 2), 1)
    client.ask(produce_request("t", records(b"b"), acks=1), 9)
    assert list_offsets(client, -1).offset == 1
    assert list_offsets(client, -1, replica_id=2).offset == 2


def test_a_new_leader_behind_its_epoch_does_not_know_the_latest(node: DataNode, client: Client) -> None:
    node.create_topic("t")
    partition = node.partition("t")
    node.call(partition.become_leader, 1, (1, 2), (1, 2), 1)
    client.ask(produce_request("t", records(b"b"), acks=1), 9)
    node.call(partition.become_leader, 2, (1, 2), (1, 2), 2)
    assert list_offsets(client, -1).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert list_offsets(client, -1, 4).error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert list_offsets(client, -2).offset == 0
    node.call(partition.follower_fetched, 2, -1, 1, 0, 0)
    assert list_offsets(client, -1).offset == 1


def test_list_offsets_refusals(node: DataNode, client: Client) -> None:
    node.create_topic("t")
    node.create_topic("other", leader=2)
    node.call(node.partition("t").become_leader, 3, (1,), (1,), 1)
    assert list_offsets(client, -1, topic="missing").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list_offsets(client, -1, topic="other").error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert list_offsets(client, -1, index=9).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list_offsets(client, -1, leader_epoch=2).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert list_offsets(client, -1, leader_epoch=4).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    twice = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(timestamp=-1)] * 2)
    answers = client.ask(ListOffsetsRequest(topics=[twice]), 6).topics[0].partitions
    assert {answer.error_code for answer in answers} == {ErrorCode.INVALID_REQUEST}


@pytest.mark.parametrize("version", range(1, 12))
def test_list_offsets_at_every_version(node: DataNode, client: Client, version: int) -> None:
    node.create_topic("t")
    client.ask(produce_request("t", stamped(1000, 2000)), 9)
    answer = list_offsets(client, 1500, version)
    assert found(answer) == (1, 2000, 0 if version >= 4 else -1)


@pytest.mark.parametrize("version", [2, 3, 4])
def test_where_epochs_end(node: DataNode, client: Client, version: int) -> None:
    node.create_topic("t")
    for epoch in (1, 4):
        node.call(node.partition("t").become_leader, epoch, (1,), (1,), epoch)
        client.ask(produce_request("t", records(b"a", b"b")), 9)

    def end(epoch: int, current: int = -1, topic: str = "t") -> tuple[int, int, int]:
        asked = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
        request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])])
        answer = client.ask(request, version).topics[0].partitions[0]
        return answer.error_code, answer.leader_epoch, answer.end_offset

    assert end(1) == (0, 1, 2)
    assert end(2) == (0, 1, 2)
    assert end(4) == (0, 4, 4)
    assert end(9) == (0, -1, -1)
    assert end(4, current=3) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
    assert end(4, current=5) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert end(4, topic="missing") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


def delete(client: Client, offset: int, topic: str = "t", version: int = 2) -> tuple[str, int]:
    asked = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[asked])], timeout_ms=1000)
    answer = client.ask(request, version).topics[0].partitions[0]
    return ErrorCode(answer.error_code).name, answer.low_watermark


def test_delete_records(node: DataNode, client: Client) -> None:
    node.create_topic("t")
    for _ in range(5):
        client.ask(produce_request("t", records(b"a")), 9)
    assert delete(client, 2) == ("NONE", 2)
    assert delete(client, 1, version=0) == ("NONE", 2)
    assert delete(client, 6) == ("OFFSET_OUT_OF_RANGE", -1)
    assert delete(client, -2) == ("OFFSET_OUT_OF_RANGE", -1)
    assert list_offsets(client, -2).offset == 2
    assert delete(client, -1, version=1) == ("NONE", 5)
    data = client.ask(fetch_request("t", 4), 12).responses[0].partitions[0]
    assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_delete_records_refusals(node: DataNode, client: Client) -> None:
    node.create_topic("other", leader=2)
    node.create_topic("__consumer_offsets")
    node.create_topic("compacted", cleanup_policy=("compact",))
    assert delete(client, 0, "missing") == ("UNKNOWN_TOPIC_OR_PARTITION", -1)
    assert delete(client, 0, "other") == ("NOT_LEADER_OR_FOLLOWER", -1)
    assert delete(client, 0, "__consumer_offsets") == ("INVALID_TOPIC_EXCEPTION", -1)
    assert delete(client, 0, "compacted") == ("POLICY_VIOLATION", -1)
