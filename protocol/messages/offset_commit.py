"""A group commits its offsets.

9 is the first version for the new consumer protocol: member epoch in the generation field, STALE_MEMBER_EPOCH and
GROUP_ID_NOT_FOUND as answers (KIP-848). 10 names topics by id.
"""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, Struct, ignorable, since, until
from pylogd.protocol.uuids import ZERO
from pylogd.protocol.wire import Int16, Int32, Int64, Uuid


class OffsetCommitRequest(Message, api_key=8, versions=(2, 10), flexible=8):
    group_id: str = ""
    generation_id_or_member_epoch: Int32 = -1
    member_id: str = ""
    group_instance_id: Annotated[str | None, since(7)] = None
    retention_time_ms: Annotated[Int64, until(4), ignorable] = -1
    topics: list[OffsetCommitRequestTopic] = []


class OffsetCommitRequestTopic(Struct):
    name: Annotated[str, until(9), ignorable] = ""
    topic_id: Annotated[Uuid, since(10), ignorable] = ZERO
    partitions: list[OffsetCommitRequestPartition] = []


class OffsetCommitRequestPartition(Struct):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, since(6), ignorable] = -1
    committed_metadata: str | None = ""


class OffsetCommitResponse(Message, api_key=8, versions=(2, 10), flexible=8):
    throttle_time_ms: Annotated[Int32, since(3), ignorable] = 0
    topics: list[OffsetCommitResponseTopic] = []


class OffsetCommitResponseTopic(Struct):
    name: Annotated[str, until(9), ignorable] = ""
    topic_id: Annotated[Uuid, since(10), ignorable] = ZERO
    partitions: list[OffsetCommitResponsePartition] = []


class OffsetCommitResponsePartition(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
