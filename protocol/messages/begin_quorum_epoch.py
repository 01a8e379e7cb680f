"""KRaft: a new leader makes itself known.

Request and response differ in what they call PartitionData and TopicData: here the names are prefixed with Request
and Response.
"""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, Struct, ignorable, since, tagged
from pylogd.protocol.uuids import ZERO
from pylogd.protocol.wire import Int16, Int32, UInt16, Uuid


class BeginQuorumEpochRequest(Message, api_key=53, versions=(0, 1), flexible=1):
    cluster_id: str | None = None
    voter_id: Annotated[Int32, since(1), ignorable] = -1
    topics: list[RequestTopicData] = []
    leader_endpoints: Annotated[list[LeaderEndpoint], since(1), ignorable] = []


class RequestTopicData(Struct):
    topic_name: str = ""
    partitions: list[RequestPartitionData] = []


class RequestPartitionData(Struct):
    partition_index: Int32 = 0
    voter_directory_id: Annotated[Uuid, since(1), ignorable] = ZERO
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class LeaderEndpoint(Struct):
    name: str = ""
    host: str = ""
    port: UInt16 = 0


class BeginQuorumEpochResponse(Message, api_key=53, versions=(0, 1), flexible=1):
    error_code: Int16 = 0
    topics: list[ResponseTopicData] = []
    node_endpoints: Annotated[list[NodeEndpoint], tagged(0, since=1)] = []


class ResponseTopicData(Struct):
    topic_name: str = ""
    partitions: list[ResponsePartitionData] = []


class ResponsePartitionData(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class NodeEndpoint(Struct):
    node_id: Int32 = 0
    host: str = ""
    port: UInt16 = 0
