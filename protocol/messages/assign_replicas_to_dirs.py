"""A broker tells the controller in which log directories its replicas are.

Request and response differ in what they call DirectoryData, PartitionData and TopicData: here the names are prefixed
with Request and Response.
"""

from __future__ import annotations

from pylogd.protocol.schema import Message, Struct
from pylogd.protocol.uuids import ZERO
from pylogd.protocol.wire import Int16, Int32, Int64, Uuid


class AssignReplicasToDirsRequest(Message, api_key=73, versions=(0, 0), flexible=0):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    directories: list[RequestDirectoryData] = []


class RequestDirectoryData(Struct):
    id: Uuid = ZERO
    topics: list[RequestTopicData] = []


class RequestTopicData(Struct):
    topic_id: Uuid = ZERO
    partitions: list[RequestPartitionData] = []


class RequestPartitionData(Struct):
    partition_index: Int32 = 0


class AssignReplicasToDirsResponse(Message, api_key=73, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    directories: list[ResponseDirectoryData] = []


class ResponseDirectoryData(Struct):
    id: Uuid = ZERO
    topics: list[ResponseTopicData] = []


class ResponseTopicData(Struct):
    topic_id: Uuid = ZERO
    partitions: list[ResponsePartitionData] = []


class ResponsePartitionData(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
