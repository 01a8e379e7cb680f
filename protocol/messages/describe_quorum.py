"""KRaft: leader, voters and observers of the metadata quorum, and how far each has fetched.

Request and response differ in what they call PartitionData and TopicData: here the names are prefixed with Request
and Response.
"""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, Struct, ignorable, since
from pylogd.protocol.uuids import ZERO
from pylogd.protocol.wire import Int16, Int32, Int64, UInt16, Uuid


class DescribeQuorumRequest(Message, api_key=55, versions=(0, 2), flexible=0):
    topics: list[RequestTopicData] = []


class RequestTopicData(Struct):
    topic_name: str = ""
    partitions: list[RequestPartitionData] = []


class RequestPartitionData(Struct):
    partition_index: Int32 = 0


class DescribeQuorumResponse(Message, api_key=55, versions=(0, 2), flexible=0):
    error_code: Int16 = 0
    error_message: Annotated[str | None, since(2), ignorable] = ""
    topics: list[ResponseTopicData] = []
    nodes: Annotated[list[Node], since(2)] = []


class ResponseTopicData(Struct):
    topic_name: str = ""
    partitions: list[ResponsePartitionData] = []


class ResponsePartitionData(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[str | None, since(2), ignorable] = ""
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    high_watermark: Int64 = 0
    current_voters: list[ReplicaState] = []
    observers: list[ReplicaState] = []


class ReplicaState(Struct):
    replica_id: Int32 = 0
    replica_directory_id: Annotated[Uuid, since(2)] = ZERO
    log_end_offset: Int64 = 0
    last_fetch_timestamp: Annotated[Int64, since(1), ignorable] = -1
    last_caught_up_timestamp: Annotated[Int64, since(1), ignorable] = -1


class Node(Struct):
    node_id: Int32 = 0
    listeners: list[Listener] = []


class Listener(Struct):
    name: str = ""
    host: str = ""
    port: UInt16 = 0
