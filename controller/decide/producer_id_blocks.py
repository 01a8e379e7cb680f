"""Blocks of producer ids: each broker takes a thousand at a time and never the same ones twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pylogd.controller.state import ControllerState, Decision
from pylogd.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from pylogd.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest

BLOCK_SIZE = 1000
_INT64_MAX = (1 << 63) - 1


def allocate_producer_ids(state: ControllerState, request: AllocateProducerIdsRequest) -> Decision:
    from pylogd.protocol.messages import allocate_producer_ids as m
    from pylogd.protocol.messages.metadata_records import ProducerIdsRecord

    state.check_broker_epoch(request.broker_id, request.broker_epoch)
    first = max(state.image.next_producer_id, 0)
    if first > _INT64_MAX - BLOCK_SIZE:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            "Exhausted all producerIds as the next block's end producerId has exceeded the int64 type limit",
        )
    record = ProducerIdsRecord(
        broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=first + BLOCK_SIZE
    )
    response = m.AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK_SIZE)
    return Decision([(record, 0)], response)
