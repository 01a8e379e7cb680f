"""A share partition leader reads its state from the share coordinator."""

from __future__ import annotations

from pylogd.protocol.schema import Message, Struct
from pylogd.protocol.uuids import ZERO
from pylogd.protocol.wire import Int8, Int16, Int32, Int64, Uuid


class ReadShareGroupStateRequest(Message, api_key=84, versions=(0, 0), flexible=0):
    group_id: str = ""
    topics: list[ReadStateData] = []


class ReadStateData(Struct):
    topic_id: Uuid = ZERO
    partitions: list[PartitionData] = []


class PartitionData(Struct):
    partition: Int32 = 0
    leader_epoch: Int32 = 0


class ReadShareGroupStateResponse(Message, api_key=84, versions=(0, 0), flexible=0):
    results: list[ReadStateResult] = []


class ReadStateResult(Struct):
    topic_id: Uuid = ZERO
    partitions: list[PartitionResult] = []


class PartitionResult(Struct):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    state_epoch: Int32 = 0
    start_offset: Int64 = 0
    state_batches: list[StateBatch] = []


class StateBatch(Struct):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0
