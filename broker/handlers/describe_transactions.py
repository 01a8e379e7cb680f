"""DescribeTransactions (key 65): the transactions of some transactional ids (KIP-664)."""

from __future__ import annotations

from pylogd.broker.network.context import RequestContext
from pylogd.coordinators.shard.effects import Effects, Reply
from pylogd.coordinators.shard.shard import Shard
from pylogd.coordinators.transactions.transaction import PREPARED, Transaction
from pylogd.coordinators.transactions.transactions import TransactionsState
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from pylogd.runtime.deferred import Deferred
from pylogd.runtime.parts import Parts


def handle(ctx: RequestContext, request: DescribeTransactionsRequest) -> Deferred:
    ids = request.transactional_ids
    parts = Parts(len(ids), lambda states: DescribeTransactionsResponse(transaction_states=states))
    for slot, transactional_id in enumerate(ids):
        reply = Reply(lambda code, message, named=transactional_id: _failed(named, code))  # type: ignore[misc]
        reply.listen(lambda state, slot=slot: parts.give(slot, state))  # type: ignore[misc]
        try:
            if not transactional_id:
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            _describe(ctx.services.transactions.shard_of(transactional_id), reply, transactional_id)
        except KafkaError as refusal:
            reply.fail(refusal.code)
    return parts.deferred


def _describe(shard: Shard[TransactionsState], reply: Reply, transactional_id: str) -> None:
    def look(effects: Effects) -> None:
        transaction = shard.state.transactions.get(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        effects.answer(reply, _described(transaction))

    shard.submit(look, reply, writes=False)


def _described(transaction: Transaction) -> TransactionState:
    # A decided transaction shows the partitions that lack its marker.
    partitions = transaction.unmarked if transaction.state in PREPARED else transaction.partitions
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return TransactionState(
        transactional_id=transaction.transactional_id,
        transaction_state=transaction.state.label,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[TopicData(topic=topic, partitions=indexes) for topic, indexes in topics.items()],
    )


def _failed(transactional_id: str, code: ErrorCode) -> TransactionState:
    return TransactionState(transactional_id=transactional_id, error_code=int(code))
