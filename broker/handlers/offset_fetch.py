"""OffsetFetch (key 9): the committed offsets of groups.

2  null for all topics; an error for the whole
3  throttle time
5  leader epochs
6  flexible
7  the client may insist on stable offsets: none that a transaction may still change
8  several groups at once
9  members of the new consumer protocol are checked (KIP-848)
10 topic ids instead of names
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pylogd.coordinators.shard.effects import Effects, Reply
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from pylogd.protocol.uuids import ZERO
from pylogd.runtime.parts import Parts

if TYPE_CHECKING:
    from pylogd.broker.network.context import RequestContext
    from pylogd.runtime.deferred import Deferred

_WHOLE_ERROR = 2
_GROUPS = 8
_TOPIC_IDS = 10
NO_OFFSET = -1


def handle(ctx: RequestContext, request: OffsetFetchRequest) -> Deferred:
    groups = request.groups if ctx.version >= _GROUPS else [_only_group(request)]
    parts = Parts(len(groups), lambda answers: _response(ctx.version, answers))
    for number, group in enumerate(groups):
        _fetch(ctx, group, request.require_stable, parts, number)
    return parts.deferred


def _fetch(ctx: RequestContext, group: Any, require_stable: bool, parts: Parts, number: int) -> None:
    unknown = _resolve_ids(ctx, group) if ctx.version >= _TOPIC_IDS and group.topics is not None else []
    reply = Reply(lambda code, message: _refused(ctx.version, group, code))

    def give(answer: OffsetFetchResponseGroup) -> None:
        if answer.error_code == ErrorCode.NONE:
            if ctx.version >= _TOPIC_IDS and group.topics is None:
                _name_by_id(ctx, answer)
            answer.topics += unknown
        parts.give(number, answer)

    reply.listen(give)
    try:
        shard = ctx.services.groups.shard_of(group.group_id)
    except KafkaError as refusal:
        reply.fail(refusal.code)
        return

    def event(effects: Effects) -> None:
        shard.state.fetch(effects, reply, group, require_stable)

    shard.submit(event, reply, writes=False)


def _only_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = request.topics
    return OffsetFetchRequestGroup(
        group_id=request.group_id,
        topics=None
        if topics is None
        else [OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes) for each in topics],
    )


def _resolve_ids(ctx: RequestContext, group: Any) -> list[OffsetFetchResponseTopics]:
    """Give the topics of the request their names. Those that do not exist are taken out and answered here."""
    known, unknown = [], []
    for topic in group.topics:
        found = ctx.services.image.topic_by_id(bytes(topic.topic_id)) if topic.topic_id != ZERO else None
        if found is None:
            unknown.append(_failed(topic, ErrorCode.UNKNOWN_TOPIC_ID))
        else:
            topic.name, topic.topic_id = found.name, found.id
            known.append(topic)
    group.topics = known
    return unknown


def _name_by_id(ctx: RequestContext, answer: OffsetFetchResponseGroup) -> None:
    """Give the topics of the answer their ids. Deleted topics have none any more and are left out."""
    kept = []
    for topic in answer.topics:
        found = ctx.services.image.topics.get(topic.name)
        if found is not None:
            topic.topic_id = found.id
            kept.append(topic)
    answer.topics = kept


def _failed(topic: Any, code: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(index, NO_OFFSET, error_code=int(code)) for index in topic.partition_indexes
        ],
    )


def _refused(version: int, group: Any, code: ErrorCode) -> OffsetFetchResponseGroup:
    """The oldest version has no error for the whole: every partition carries it."""
    if version >= _WHOLE_ERROR:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=int(code))
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=[_failed(topic, code) for topic in group.topics])


def _response(version: int, answers: list[OffsetFetchResponseGroup]) -> OffsetFetchResponse:
    if version >= _GROUPS:
        return OffsetFetchResponse(groups=answers)
    (answer,) = answers
    return OffsetFetchResponse(
        error_code=answer.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        each.partition_index,
                        each.committed_offset,
                        each.committed_leader_epoch,
                        each.metadata,
                        each.error_code,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in answer.topics
        ],
    )
