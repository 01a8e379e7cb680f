"""Move the start of a log up to an offset; -1 is the high watermark."""

from __future__ import annotations

from pylogd.protocol.schema import Message, Struct
from pylogd.protocol.wire import Int16, Int32, Int64


class DeleteRecordsRequest(Message, api_key=21, versions=(0, 2), flexible=2):
    topics: list[DeleteRecordsTopic] = []
    timeout_ms: Int32 = 0


class DeleteRecordsTopic(Struct):
    name: str = ""
    partitions: list[DeleteRecordsPartition] = []


class DeleteRecordsPartition(Struct):
    partition_index: Int32 = 0
    offset: Int64 = 0


class DeleteRecordsResponse(Message, api_key=21, versions=(0, 2), flexible=2):
    throttle_time_ms: Int32 = 0
    topics: list[DeleteRecordsTopicResult] = []


class DeleteRecordsTopicResult(Struct):
    name: str = ""
    partitions: list[DeleteRecordsPartitionResult] = []


class DeleteRecordsPartitionResult(Struct):
    partition_index: Int32 = 0
    low_watermark: Int64 = 0
    error_code: Int16 = 0
