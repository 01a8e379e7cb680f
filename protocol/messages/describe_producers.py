"""The producers active in partitions."""

from __future__ import annotations

from pylogd.protocol.schema import Message, Struct
from pylogd.protocol.wire import Int16, Int32, Int64


class DescribeProducersRequest(Message, api_key=61, versions=(0, 0), flexible=0):
    topics: list[TopicRequest] = []


class TopicRequest(Struct):
    name: str = ""
    partition_indexes: list[Int32] = []


class DescribeProducersResponse(Message, api_key=61, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32 = 0
    topics: list[TopicResponse] = []


class TopicResponse(Struct):
    name: str = ""
    partitions: list[PartitionResponse] = []


class PartitionResponse(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    active_producers: list[ProducerState] = []


class ProducerState(Struct):
    producer_id: Int64 = 0
    producer_epoch: Int32 = 0
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32 = 0
    current_txn_start_offset: Int64 = -1
