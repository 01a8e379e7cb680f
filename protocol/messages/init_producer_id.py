"""Producer id and epoch for an idempotent or transactional producer.

4 may answer PRODUCER_FENCED, 5 TRANSACTION_ABORTABLE; 6 (two-phase commit, KIP-939) is not settled.
"""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, since
from pylogd.protocol.wire import Int16, Int32, Int64


class InitProducerIdRequest(Message, api_key=22, versions=(0, 6), flexible=2, unstable=True):
    transactional_id: str | None = ""
    transaction_timeout_ms: Int32 = 0
    producer_id: Annotated[Int64, since(3)] = -1
    producer_epoch: Annotated[Int16, since(3)] = -1
    enable_2pc: Annotated[bool, since(6)] = False
    keep_prepared_txn: Annotated[bool, since(6)] = False


class InitProducerIdResponse(Message, api_key=22, versions=(0, 6), flexible=2):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0
    ongoing_txn_producer_id: Annotated[Int64, since(6)] = -1
    ongoing_txn_producer_epoch: Annotated[Int16, since(6)] = -1
