"""ListTransactions (key 66): the transactional ids this broker coordinates (KIP-664).

1  only transactions open for longer than a duration
2  only ids that match a pattern
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pylogd.broker.network.context import RequestContext
from pylogd.coordinators.shard.effects import Effects, Reply
from pylogd.coordinators.transactions.transaction import LABELS, Transaction
from pylogd.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from pylogd.runtime.deferred import Deferred
from pylogd.runtime.parts import Parts


def handle(ctx: RequestContext, request: ListTransactionsRequest) -> Deferred:
    shards = [shard for shard in ctx.services.transactions.shards.by_partition.values() if not shard.failed]
    for shard in shards:
        shard.check()
    wanted = _filter(request, ctx.services.clock.now_ms())

    def finish(parts: list[Any]) -> ListTransactionsResponse:
        return ListTransactionsResponse(
            unknown_state_filters=[name for name in request.state_filters if name not in LABELS],
            transaction_states=[row for part in parts for row in part],
        )

    parts = Parts(len(shards), finish)
    for slot, shard in enumerate(shards):
        # A shard that moves to another broker meanwhile lists nothing.
        reply = Reply(lambda code, message: [])
        reply.listen(lambda rows, slot=slot: parts.give(slot, rows))  # type: ignore[misc]

        def look(effects: Effects, shard: Any = shard, reply: Reply = reply) -> None:
            rows = [
                TransactionState(transaction.transactional_id, transaction.producer_id, transaction.state.label)
                for transaction in shard.state.transactions.values()
                if wanted(transaction)
            ]
            effects.answer(reply, rows)

        shard.submit(look, reply, writes=False)
    return parts.deferred


def _filter(request: ListTransactionsRequest, now_ms: int) -> Callable[[Transaction], bool]:
    producers = frozenset(request.producer_id_filters)
    states = frozenset(request.state_filters)
    pattern: Any = None
    if request.transactional_id_pattern:
        from pylogd.coordinators.groups.consumer.regex import compile_regex

        pattern = compile_regex(request.transactional_id_pattern)

    def wanted(transaction: Transaction) -> bool:
        if producers and transaction.producer_id not in producers:
            return False
        if states and transaction.state.label not in states:
            return False
        if request.duration_filter >= 0 and now_ms - transaction.start_ms <= request.duration_filter:
            return False
        return pattern is None or pattern.fullmatch(transaction.transactional_id) is not None

    return wanted
