"""A broker takes a block of producer ids."""

from __future__ import annotations

from pylogd.protocol.schema import Message
from pylogd.protocol.wire import Int16, Int32, Int64


class AllocateProducerIdsRequest(Message, api_key=67, versions=(0, 0), flexible=0):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1


class AllocateProducerIdsResponse(Message, api_key=67, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id_start: Int64 = 0
    producer_id_len: Int32 = 0
