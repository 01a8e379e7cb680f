"""State of transactional ids."""

from __future__ import annotations

from pylogd.protocol.schema import Message, Struct
from pylogd.protocol.wire import Int16, Int32, Int64


class DescribeTransactionsRequest(Message, api_key=65, versions=(0, 0), flexible=0):
    transactional_ids: list[str] = []


class DescribeTransactionsResponse(Message, api_key=65, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32 = 0
    transaction_states: list[TransactionState] = []


class TransactionState(Struct):
    error_code: Int16 = 0
    transactional_id: str = ""
    transaction_state: str = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: list[TopicData] = []


class TopicData(Struct):
    topic: str = ""
    partitions: list[Int32] = []
