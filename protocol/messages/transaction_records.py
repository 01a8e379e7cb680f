"""Records of `__transaction_state`, framed like those of `__consumer_offsets`."""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, Struct, tagged
from pylogd.protocol.wire import Int8, Int16, Int32, Int64


class TransactionLogKey(Message, api_key=0, versions=(0, 0)):
    transactional_id: str = ""


class TransactionLogValue(Message, api_key=0, versions=(0, 1), flexible=1):
    producer_id: Int64 = 0
    previous_producer_id: Annotated[Int64, tagged(0, since=1)] = -1
    next_producer_id: Annotated[Int64, tagged(1, since=1)] = -1
    producer_epoch: Int16 = 0
    next_producer_epoch: Annotated[Int16, tagged(3, since=1)] = -1
    transaction_timeout_ms: Int32 = 0
    transaction_status: Int8 = 0
    transaction_partitions: list[PartitionsSchema] | None = []
    transaction_last_update_timestamp_ms: Int64 = 0
    transaction_start_timestamp_ms: Int64 = 0
    client_transaction_version: Annotated[Int16, tagged(2, since=1)] = 0


class PartitionsSchema(Struct):
    topic: str = ""
    partition_ids: list[Int32] = []
