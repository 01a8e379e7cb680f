"""The committed offsets of groups.

Null topics mean all. 7 may insist on stable offsets (UNSTABLE_OFFSET_COMMIT otherwise); 8 asks for several groups at
once; 9 checks the member of the new consumer protocol; 10 names topics by id.
"""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, Struct, ignorable, nullable, since, until
from pylogd.protocol.uuids import ZERO
from pylogd.protocol.wire import Int16, Int32, Int64, Uuid


class OffsetFetchRequest(Message, api_key=9, versions=(1, 10), flexible=6):
    group_id: Annotated[str, until(7)] = ""
    topics: Annotated[list[OffsetFetchRequestTopic] | None, until(7), nullable(since=2)] = []
    groups: Annotated[list[OffsetFetchRequestGroup], since(8)] = []
    require_stable: Annotated[bool, since(7)] = False


class OffsetFetchRequestTopic(Struct):
    name: str = ""
    partition_indexes: list[Int32] = []


class OffsetFetchRequestGroup(Struct):
    group_id: str = ""
    member_id: Annotated[str | None, since(9), ignorable] = None
    member_epoch: Annotated[Int32, since(9), ignorable] = -1
    topics: list[OffsetFetchRequestTopics] | None = []


class OffsetFetchRequestTopics(Struct):
    name: Annotated[str, until(9), ignorable] = ""
    topic_id: Annotated[Uuid, since(10), ignorable] = ZERO
    partition_indexes: list[Int32] = []


class OffsetFetchResponse(Message, api_key=9, versions=(1, 10), flexible=6):
    throttle_time_ms: Annotated[Int32, since(3), ignorable] = 0
    topics: Annotated[list[OffsetFetchResponseTopic], until(7)] = []
    error_code: Annotated[Int16, since(2), until(7), ignorable] = 0
    groups: Annotated[list[OffsetFetchResponseGroup], since(8)] = []


class OffsetFetchResponseTopic(Struct):
    name: str = ""
    partitions: list[OffsetFetchResponsePartition] = []


class OffsetFetchResponsePartition(Struct):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, since(5), ignorable] = -1
    metadata: str | None = ""
    error_code: Int16 = 0


class OffsetFetchResponseGroup(Struct):
    group_id: str = ""
    topics: list[OffsetFetchResponseTopics] = []
    error_code: Int16 = 0


class OffsetFetchResponseTopics(Struct):
    name: Annotated[str, until(9), ignorable] = ""
    topic_id: Annotated[Uuid, since(10), ignorable] = ZERO
    partitions: list[OffsetFetchResponsePartitions] = []


class OffsetFetchResponsePartitions(Struct):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = -1
    metadata: str | None = ""
    error_code: Int16 = 0
