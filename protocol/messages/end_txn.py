"""Commit or abort a transaction.

5: every transaction bumps the epoch, and the response tells the producer its new one (KIP-890).
"""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, ignorable, since
from pylogd.protocol.wire import Int16, Int32, Int64


class EndTxnRequest(Message, api_key=26, versions=(0, 5), flexible=3):
    transactional_id: str = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    committed: bool = False


class EndTxnResponse(Message, api_key=26, versions=(0, 5), flexible=3):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Annotated[Int64, since(5), ignorable] = -1
    producer_epoch: Annotated[Int16, since(5), ignorable] = -1
