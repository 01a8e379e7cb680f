"""Partitions of topics, page by page."""

from __future__ import annotations

from pylogd.protocol.schema import Message, Struct
from pylogd.protocol.uuids import ZERO
from pylogd.protocol.wire import Int16, Int32, Uuid


class DescribeTopicPartitionsRequest(Message, api_key=75, versions=(0, 0), flexible=0):
    topics: list[TopicRequest] = []
    response_partition_limit: Int32 = 2000
    cursor: Cursor | None = None


class TopicRequest(Struct):
    name: str = ""


class Cursor(Struct):
    topic_name: str = ""
    partition_index: Int32 = 0


class DescribeTopicPartitionsResponse(Message, api_key=75, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32 = 0
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    next_cursor: Cursor | None = None


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: Int16 = 0
    name: str | None = ""
    topic_id: Uuid = ZERO
    is_internal: bool = False
    partitions: list[DescribeTopicPartitionsResponsePartition] = []
    topic_authorized_operations: Int32 = -0x80000000


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = -1
    replica_nodes: list[Int32] = []
    isr_nodes: list[Int32] = []
    eligible_leader_replicas: list[Int32] | None = None
    last_known_elr: list[Int32] | None = None
    offline_replicas: list[Int32] = []
