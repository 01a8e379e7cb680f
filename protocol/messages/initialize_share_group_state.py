"""The group coordinator starts the state of share partitions."""

from __future__ import annotations

from pylogd.protocol.schema import Message, Struct
from pylogd.protocol.uuids import ZERO
from pylogd.protocol.wire import Int16, Int32, Int64, Uuid


class InitializeShareGroupStateRequest(Message, api_key=83, versions=(0, 0), flexible=0):
    group_id: str = ""
    topics: list[InitializeStateData] = []


class InitializeStateData(Struct):
    topic_id: Uuid = ZERO
    partitions: list[PartitionData] = []


class PartitionData(Struct):
    partition: Int32 = 0
    state_epoch: Int32 = 0
    start_offset: Int64 = 0


class InitializeShareGroupStateResponse(Message, api_key=83, versions=(0, 0), flexible=0):
    results: list[InitializeStateResult] = []


class InitializeStateResult(Struct):
    topic_id: Uuid = ZERO
    partitions: list[PartitionResult] = []


class PartitionResult(Struct):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
