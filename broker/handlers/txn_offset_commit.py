"""TxnOffsetCommit (key 28): a producer commits a group's offsets in its transaction; they count once it is committed.

1  throttling after the response
2  leader epochs
3  flexible; member id and generation, which fence a consumer that was replaced (KIP-447)
4  TRANSACTION_ABORTABLE
5  transaction version 2: the offsets' partition joins the transaction with this request (KIP-890)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pylogd.coordinators.groups.commits import Commit
from pylogd.coordinators.shard.effects import Reply
from pylogd.coordinators.transactions.verifier import Operation, Question
from pylogd.metadata.topic_names import OFFSETS_TOPIC
from pylogd.protocol.api import ApiKey
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.failures import known_code
from pylogd.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from pylogd.protocol.uuids import ZERO
from pylogd.storage.producers.verification_guard import UNVERIFIED, Guard

if TYPE_CHECKING:
    from pylogd.broker.network.context import RequestContext
    from pylogd.coordinators.groups.groups import GroupState
    from pylogd.coordinators.shard.shard import Shard
    from pylogd.runtime.deferred import Deferred

_NO_SEQUENCE = -1


def handle(ctx: RequestContext, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse | Deferred:
    commits, response = _split(ctx, request)
    if not commits:
        return response
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)

    def refuse(code: ErrorCode, message: str | None) -> TxnOffsetCommitResponse:
        known = int(known_code(ApiKey.TXN_OFFSET_COMMIT, ctx.version, code))
        for commit in commits:
            commit.answer.error_code = known
        return response

    reply = Reply(refuse)
    shard = ctx.services.groups.shard_of(request.group_id)
    _verify(ctx, request, shard, reply, lambda guard: _commit(ctx, request, reply, commits, response, guard))
    return reply


def _split(ctx: RequestContext, request: TxnOffsetCommitRequest) -> tuple[list[Commit], TxnOffsetCommitResponse]:
    """The commits to partitions that exist, each with its place in the response."""
    commits: list[Commit] = []
    topics = []
    for topic in request.topics:
        known = ctx.services.image.topic(topic.name)
        answers = []
        for partition in topic.partitions:
            answer = TxnOffsetCommitResponsePartition(partition.partition_index)
            answers.append(answer)
            if known is None or known.partition(partition.partition_index) is None:
                answer.error_code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                commits.append(Commit(request.group_id, known.name, known.id, partition, answer, ZERO))
        topics.append(TxnOffsetCommitResponseTopic(topic.name, answers))
    return commits, TxnOffsetCommitResponse(topics=topics)


def _verify(
    ctx: RequestContext, request: TxnOffsetCommitRequest, shard: Shard[GroupState], reply: Reply, then: Any
) -> None:
    """`then(guard)` once the coordinator of the transaction knows that offsets are part of it."""
    services = ctx.services
    operation = Operation.of_offset_commit(ctx.version)
    if operation is not Operation.ADD and not services.config["transaction.partition.verification.enable"]:
        then(None)
        return
    guard = shard.partition.log.producers.start_verification(
        request.producer_id,
        _NO_SEQUENCE,
        request.producer_epoch,
        operation is Operation.ADD,
        services.clock.now_ms(),
    )
    if guard is UNVERIFIED:
        then(guard)
        return
    partition = (OFFSETS_TOPIC, shard.index)

    def done(codes: dict[tuple[str, int], ErrorCode]) -> None:
        code = codes.get(partition, ErrorCode.NONE)
        if code is ErrorCode.NONE:
            then(guard)
        else:
            reply.fail(code)

    services.verifier.ask(
        Question(request.transactional_id, request.producer_id, request.producer_epoch, [partition], operation, done)
    )


def _commit(
    ctx: RequestContext,
    request: TxnOffsetCommitRequest,
    reply: Reply,
    commits: list[Commit],
    response: TxnOffsetCommitResponse,
    guard: Guard | None,
) -> None:
    try:
        shard = ctx.services.groups.shard_of(request.group_id)
        shard.submit(
            lambda effects: shard.state.commit_in_transaction(effects, reply, request, ctx.version, commits, response),
            reply,
            producer=(request.producer_id, request.producer_epoch),
            guard=guard,
        )
    except KafkaError as refusal:
        reply.fail(refusal.code)
