"""The group coordinator deletes the state of share partitions."""

from __future__ import annotations

from pylogd.protocol.schema import Message, Struct
from pylogd.protocol.uuids import ZERO
from pylogd.protocol.wire import Int16, Int32, Uuid


class DeleteShareGroupStateRequest(Message, api_key=86, versions=(0, 0), flexible=0):
    group_id: str = ""
    topics: list[DeleteStateData] = []


class DeleteStateData(Struct):
    topic_id: Uuid = ZERO
    partitions: list[PartitionData] = []


class PartitionData(Struct):
    partition: Int32 = 0


class DeleteShareGroupStateResponse(Message, api_key=86, versions=(0, 0), flexible=0):
    results: list[DeleteStateResult] = []


class DeleteStateResult(Struct):
    topic_id: Uuid = ZERO
    partitions: list[PartitionResult] = []


class PartitionResult(Struct):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
