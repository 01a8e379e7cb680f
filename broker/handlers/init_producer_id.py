"""InitProducerId (key 22): the identity of an idempotent or transactional producer.

1  throttling after the response
2  flexible
3  producer id and epoch, to bump the epoch after an error (KIP-360)
4  PRODUCER_FENCED
5  retriable transaction errors are known to the client (KIP-890)

Without a transactional id the producer gets a new id at epoch 0. With one its coordinator answers: the epoch is raised,
which fences every earlier producer of that name.
"""

from __future__ import annotations

from collections.abc import Awaitable

from pylogd.broker.network.context import RequestContext
from pylogd.coordinators.shard.effects import Reply
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.failures import error_response
from pylogd.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from pylogd.runtime.deferred import Deferred


def handle(ctx: RequestContext, request: InitProducerIdRequest) -> Deferred | Awaitable[InitProducerIdResponse]:
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is None:
        return _new_identity(ctx)
    if request.transactional_id == "":
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    expected = None if request.producer_id == -1 else (request.producer_id, request.producer_epoch)
    reply = Reply(lambda code, message: error_response(request, ctx.version, code, message))
    ctx.services.transactions.init_producer_id(
        reply, request.transactional_id, request.transaction_timeout_ms, expected
    )
    return reply


async def _new_identity(ctx: RequestContext) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=await ctx.services.producer_ids.next(), producer_epoch=0)
