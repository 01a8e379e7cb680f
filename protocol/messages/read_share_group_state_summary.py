"""The state of share partitions without its batches."""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, Struct, ignorable, since
from pylogd.protocol.uuids import ZERO
from pylogd.protocol.wire import Int16, Int32, Int64, Uuid


class ReadShareGroupStateSummaryRequest(Message, api_key=87, versions=(0, 1), flexible=0):
    group_id: str = ""
    topics: list[ReadStateSummaryData] = []


class ReadStateSummaryData(Struct):
    topic_id: Uuid = ZERO
    partitions: list[PartitionData] = []


class PartitionData(Struct):
    partition: Int32 = 0
    leader_epoch: Int32 = 0


class ReadShareGroupStateSummaryResponse(Message, api_key=87, versions=(0, 1), flexible=0):
    results: list[ReadStateSummaryResult] = []


class ReadStateSummaryResult(Struct):
    topic_id: Uuid = ZERO
    partitions: list[PartitionResult] = []


class PartitionResult(Struct):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    state_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: Annotated[Int32, since(1), ignorable] = -1
