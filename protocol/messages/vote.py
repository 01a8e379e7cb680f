"""KRaft: a candidate asks for a vote, or first whether it would get one.

Request and response differ in what they call PartitionData and TopicData: here the names are prefixed with Request
and Response.
"""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, Struct, ignorable, since, tagged
from pylogd.protocol.uuids import ZERO
from pylogd.protocol.wire import Int16, Int32, Int64, UInt16, Uuid


class VoteRequest(Message, api_key=52, versions=(0, 2), flexible=0):
    cluster_id: str | None = None
    voter_id: Annotated[Int32, since(1), ignorable] = -1
    topics: list[RequestTopicData] = []


class RequestTopicData(Struct):
    topic_name: str = ""
    partitions: list[RequestPartitionData] = []


class RequestPartitionData(Struct):
    partition_index: Int32 = 0
    replica_epoch: Int32 = 0
    replica_id: Int32 = 0
    replica_directory_id: Annotated[Uuid, since(1), ignorable] = ZERO
    voter_directory_id: Annotated[Uuid, since(1), ignorable] = ZERO
    last_offset_epoch: Int32 = 0
    last_offset: Int64 = 0
    pre_vote: Annotated[bool, since(2)] = False


class VoteResponse(Message, api_key=52, versions=(0, 2), flexible=0):
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
    vote_granted: bool = False


class NodeEndpoint(Struct):
    node_id: Int32 = 0
    host: str = ""
    port: UInt16 = 0
