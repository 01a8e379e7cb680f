"""A group's offsets partition joins a transaction.

2 may answer PRODUCER_FENCED, 4 TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from pylogd.protocol.schema import Message
from pylogd.protocol.wire import Int16, Int32, Int64


class AddOffsetsToTxnRequest(Message, api_key=25, versions=(0, 4), flexible=3):
    transactional_id: str = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    group_id: str = ""


class AddOffsetsToTxnResponse(Message, api_key=25, versions=(0, 4), flexible=3):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
