"""Start or cancel moving replicas of partitions."""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, Struct, ignorable, since
from pylogd.protocol.wire import Int16, Int32


class AlterPartitionReassignmentsRequest(Message, api_key=45, versions=(0, 1), flexible=0):
    timeout_ms: Int32 = 60000
    allow_replication_factor_change: Annotated[bool, since(1)] = True
    topics: list[ReassignableTopic] = []


class ReassignableTopic(Struct):
    name: str = ""
    partitions: list[ReassignablePartition] = []


class ReassignablePartition(Struct):
    partition_index: Int32 = 0
    replicas: list[Int32] | None = None


class AlterPartitionReassignmentsResponse(Message, api_key=45, versions=(0, 1), flexible=0):
    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Annotated[bool, since(1), ignorable] = True
    error_code: Int16 = 0
    error_message: str | None = ""
    responses: list[ReassignableTopicResponse] = []


class ReassignableTopicResponse(Struct):
    name: str = ""
    partitions: list[ReassignablePartitionResponse] = []


class ReassignablePartitionResponse(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
