"""Where a leader epoch ends, so that consumers and followers notice a truncation."""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, Struct, ignorable, since
from pylogd.protocol.wire import Int16, Int32, Int64


class OffsetForLeaderEpochRequest(Message, api_key=23, versions=(2, 4), flexible=4):
    replica_id: Annotated[Int32, since(3), ignorable] = -2
    topics: list[OffsetForLeaderTopic] = []


class OffsetForLeaderTopic(Struct):
    topic: str = ""
    partitions: list[OffsetForLeaderPartition] = []


class OffsetForLeaderPartition(Struct):
    partition: Int32 = 0
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32 = 0


class OffsetForLeaderEpochResponse(Message, api_key=23, versions=(2, 4), flexible=4):
    throttle_time_ms: Int32 = 0
    topics: list[OffsetForLeaderTopicResult] = []


class OffsetForLeaderTopicResult(Struct):
    topic: str = ""
    partitions: list[EpochEndOffset] = []


class EpochEndOffset(Struct):
    error_code: Int16 = 0
    partition: Int32 = 0
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1
