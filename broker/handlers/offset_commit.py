"""OffsetCommit (key 8): a group commits its offsets; the reply comes when they are replicated.

2  a retention time for the offsets (until 4)
3  throttle time
5  no retention time any more: the broker's setting holds
6  leader epochs
7  static members
8  flexible
9  member epochs of the new consumer protocol; GROUP_ID_NOT_FOUND, STALE_MEMBER_EPOCH (KIP-848)
10 topic ids instead of names
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pylogd.broker.commit.commit_reply import CommitReply, resources
from pylogd.coordinators.groups.commits import Commit
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from pylogd.broker.network.context import RequestContext

__all__ = ["handle", "resources"]

_TOPIC_IDS = 10


def handle(ctx: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse | CommitReply:
    image = ctx.services.image
    commits: list[Commit] = []
    topics = []
    for topic in request.topics:
        if ctx.version >= _TOPIC_IDS:
            known = image.topic_by_id(bytes(topic.topic_id))
            missing = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            known = image.topics.get(topic.name)
            missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        count = 0 if known is None else len(known.partitions)
        answers = []
        for partition in topic.partitions:
            answer = OffsetCommitResponsePartition(partition.partition_index)
            answers.append(answer)
            if known is None:
                answer.error_code = missing
            elif not 0 <= partition.partition_index < count:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                commits.append(Commit(request.group_id, known.name, known.id, partition, answer))
        topics.append(OffsetCommitResponseTopic(topic.name, topic.topic_id, answers))
    response = OffsetCommitResponse(topics=topics)
    if not commits:
        return response

    shard = ctx.services.groups.shard_of(request.group_id)
    reply = CommitReply(shard, commits, response)
    version = ctx.version
    shard.submit(
        lambda effects: shard.state.commit(effects, reply, request, version, commits, response), reply, writes=False
    )
    return reply
