"""Set the start offsets of an empty share group."""

from __future__ import annotations

from pylogd.protocol.schema import Message, Struct
from pylogd.protocol.uuids import ZERO
from pylogd.protocol.wire import Int16, Int32, Int64, Uuid


class AlterShareGroupOffsetsRequest(Message, api_key=91, versions=(0, 0), flexible=0):
    group_id: str = ""
    topics: list[AlterShareGroupOffsetsRequestTopic] = []


class AlterShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = ""
    partitions: list[AlterShareGroupOffsetsRequestPartition] = []


class AlterShareGroupOffsetsRequestPartition(Struct):
    partition_index: Int32 = 0
    start_offset: Int64 = 0


class AlterShareGroupOffsetsResponse(Message, api_key=91, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    responses: list[AlterShareGroupOffsetsResponseTopic] = []


class AlterShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = ""
    topic_id: Uuid = ZERO
    partitions: list[AlterShareGroupOffsetsResponsePartition] = []


class AlterShareGroupOffsetsResponsePartition(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
