"""A share partition leader writes its state to the share coordinator."""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, Struct, ignorable, since
from pylogd.protocol.uuids import ZERO
from pylogd.protocol.wire import Int8, Int16, Int32, Int64, Uuid


class WriteShareGroupStateRequest(Message, api_key=85, versions=(0, 1), flexible=0):
    group_id: str = ""
    topics: list[WriteStateData] = []


class WriteStateData(Struct):
    topic_id: Uuid = ZERO
    partitions: list[PartitionData] = []


class PartitionData(Struct):
    partition: Int32 = 0
    state_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: Annotated[Int32, since(1), ignorable] = -1
    state_batches: list[StateBatch] = []


class StateBatch(Struct):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0


class WriteShareGroupStateResponse(Message, api_key=85, versions=(0, 1), flexible=0):
    results: list[WriteStateResult] = []


class WriteStateResult(Struct):
    topic_id: Uuid = ZERO
    partitions: list[PartitionResult] = []


class PartitionResult(Struct):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
