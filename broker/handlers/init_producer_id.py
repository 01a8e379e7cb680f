"""InitProducerId (key 22): the identity of an idempotent or transactional producer.

1  throttling after the response
2  flexible
3  producer id and epoch, to bump the epoch after an error (KIP-360)
4  PRODUCER_FENCED
5  retriable transaction errors are known to the client (KIP-890)

Without a transactional id the producer gets a new id at epoch 0. With one, the transaction coordinator answers; while a
broker has none, the client hears what Kafka says then and tries again.
"""

from __future__ import annotations

from collections.abc import Awaitable

from pylogd.broker.dispatch import RequestContext
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


def handle(
    ctx: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is None:
        return _new_identity(ctx)
    if request.transactional_id == "":
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)


async def _new_identity(ctx: RequestContext) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=await ctx.node.producer_ids.next(), producer_epoch=0)


def error_response(
    ctx: RequestContext, request: InitProducerIdRequest, code: ErrorCode, message: str | None
) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=int(code), producer_id=-1, producer_epoch=-1)
