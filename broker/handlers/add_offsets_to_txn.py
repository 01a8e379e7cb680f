"""AddOffsetsToTxn (key 25): a group's offsets will be committed in a producer's transaction, so the group's partition
of `__consumer_offsets` joins it.

1  throttling after the response
2  PRODUCER_FENCED
3  flexible
4  TRANSACTION_ABORTABLE

Clients of transaction version 2 do not send it: TxnOffsetCommit adds the partition.
"""

from __future__ import annotations

from pylogd.broker.network.context import RequestContext
from pylogd.metadata.topic_names import OFFSETS_TOPIC
from pylogd.protocol.api import ApiKey
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.failures import known_code
from pylogd.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from pylogd.runtime.deferred import Deferred


def handle(ctx: RequestContext, request: AddOffsetsToTxnRequest) -> Deferred:
    deferred = Deferred()
    partition = (OFFSETS_TOPIC, ctx.services.groups.partition_of(request.group_id))

    def done(codes: dict[tuple[str, int], ErrorCode]) -> None:
        code = known_code(ApiKey.ADD_OFFSETS_TO_TXN, ctx.version, codes[partition])
        deferred.resolve(AddOffsetsToTxnResponse(error_code=int(code)))

    ctx.services.transactions.add_partitions(
        request.transactional_id, request.producer_id, request.producer_epoch, [partition], done
    )
    return deferred
