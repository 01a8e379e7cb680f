"""Offsets by timestamp, and the special ones.

Timestamps: -1 latest, -2 earliest; 7 adds -3 (record with the largest timestamp), 8 adds -4 (earliest local), 9 adds
-5 (latest tiered), 11 adds -6 (earliest pending upload). 5 may answer OFFSET_NOT_AVAILABLE; 10 lets the broker wait
for tiered storage up to timeout_ms.
"""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, Struct, ignorable, since
from pylogd.protocol.wire import Int8, Int16, Int32, Int64


class ListOffsetsRequest(Message, api_key=2, versions=(1, 11), flexible=6):
    replica_id: Int32 = 0
    isolation_level: Annotated[Int8, since(2)] = 0
    topics: list[ListOffsetsTopic] = []
    timeout_ms: Annotated[Int32, since(10), ignorable] = 0


class ListOffsetsTopic(Struct):
    name: str = ""
    partitions: list[ListOffsetsPartition] = []


class ListOffsetsPartition(Struct):
    partition_index: Int32 = 0
    current_leader_epoch: Annotated[Int32, since(4), ignorable] = -1
    timestamp: Int64 = 0


class ListOffsetsResponse(Message, api_key=2, versions=(1, 11), flexible=6):
    throttle_time_ms: Annotated[Int32, since(2), ignorable] = 0
    topics: list[ListOffsetsTopicResponse] = []


class ListOffsetsTopicResponse(Struct):
    name: str = ""
    partitions: list[ListOffsetsPartitionResponse] = []


class ListOffsetsPartitionResponse(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Annotated[Int32, since(4)] = -1
