"""EndTxn (key 26): a producer commits or aborts its transaction.

1  throttling after the response
2  PRODUCER_FENCED
3  flexible
4  TRANSACTION_ABORTABLE
5  transaction version 2: the epoch is raised, and the response says with which id and epoch to go on (KIP-890)

The reply means that the decision is committed; the markers follow.
"""

from __future__ import annotations

from pylogd.broker.network.context import RequestContext
from pylogd.coordinators.shard.effects import Reply
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.failures import error_response
from pylogd.protocol.messages.end_txn import EndTxnRequest
from pylogd.runtime.deferred import Deferred

_EPOCH_BUMP = 5


def handle(ctx: RequestContext, request: EndTxnRequest) -> Deferred:
    if not request.transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    reply = Reply(lambda code, message: error_response(request, ctx.version, code, message))
    ctx.services.transactions.end(
        reply,
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        request.committed,
        2 if ctx.version >= _EPOCH_BUMP else 0,
    )
    return reply
