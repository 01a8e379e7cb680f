"""AddPartitionsToTxn (key 24): partitions join a producer's transaction.

0-3  from producers, one transaction each
1    throttling after the response
2    PRODUCER_FENCED
3    flexible
4    from brokers only: several transactions, to add partitions or only to see whether they are in (KIP-890)
5    TRANSACTION_ABORTABLE
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from pylogd.runtime.parts import Parts

if TYPE_CHECKING:
    from pylogd.broker.network.context import RequestContext
    from pylogd.coordinators.transactions.transaction import TopicPartition
    from pylogd.coordinators.transactions.transaction_coordinator import Codes
    from pylogd.runtime.deferred import Deferred

_FROM_BROKERS = 4
_PRODUCER_FENCED = 2


def handle(ctx: RequestContext, request: AddPartitionsToTxnRequest) -> Deferred:
    transactions = _transactions(ctx, request)
    results: dict[str, Codes] = {}

    def finish(_: list[Any]) -> AddPartitionsToTxnResponse:
        if ctx.version >= _FROM_BROKERS:
            return AddPartitionsToTxnResponse(
                results_by_transaction=[
                    AddPartitionsToTxnResult(transactional_id, _topics(codes))
                    for transactional_id, codes in results.items()
                ]
            )
        [codes] = results.values()
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_topics(codes))

    parts = Parts(len(transactions), finish)
    for slot, transaction in enumerate(transactions):
        _add(ctx, transaction, results, lambda slot=slot: parts.give(slot, None))  # type: ignore[misc]
    return parts.deferred


def _transactions(ctx: RequestContext, request: AddPartitionsToTxnRequest) -> list[AddPartitionsToTxnTransaction]:
    if ctx.version >= _FROM_BROKERS:
        return request.transactions
    return [
        AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
    ]


def _add(
    ctx: RequestContext,
    transaction: AddPartitionsToTxnTransaction,
    results: dict[str, Codes],
    given: Callable[[], None],
) -> None:
    image = ctx.services.image
    wanted: list[TopicPartition] = []
    missing: list[TopicPartition] = []
    for topic in transaction.topics:
        known = image.topic(topic.name)
        for index in topic.partitions:
            exists = known is not None and known.partition(index) is not None
            (wanted if exists else missing).append((topic.name, index))
    if missing:
        # One missing partition fails them all.
        codes = dict.fromkeys(missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        codes.update(dict.fromkeys(wanted, ErrorCode.OPERATION_NOT_ATTEMPTED))
        results[transaction.transactional_id] = codes
        given()
        return

    def done(codes: Codes) -> None:
        if ctx.version < _PRODUCER_FENCED:
            codes = {
                partition: ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code
                for partition, code in codes.items()
            }
        results[transaction.transactional_id] = codes
        given()

    ctx.services.transactions.add_partitions(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        wanted,
        done,
        verify_only=transaction.verify_only,
        client_version=2 if ctx.version >= _FROM_BROKERS else 0,
    )


def _topics(codes: Codes) -> list[AddPartitionsToTxnTopicResult]:
    topics: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for (topic, index), code in codes.items():
        topics.setdefault(topic, []).append(AddPartitionsToTxnPartitionResult(index, int(code)))
    return [AddPartitionsToTxnTopicResult(name, rows) for name, rows in topics.items()]
