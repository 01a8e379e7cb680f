"""OffsetForLeaderEpoch (key 23): where an epoch ends in the leader's log, so that a reader learns what was truncated.

2  current leader epoch, throttle time
3  replica id, so that a consumer can be told from a follower
4  flexible
"""

from __future__ import annotations

from pylogd.broker.network.context import RequestContext
from pylogd.protocol.errors import KafkaError
from pylogd.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)


def handle(ctx: RequestContext, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    topics = []
    for topic in request.topics:
        answers = []
        for asked in topic.partitions:
            answer = EpochEndOffset(partition=asked.partition)
            answers.append(answer)
            partition = ctx.services.replicas.get(topic.topic, asked.partition)
            try:
                if partition is None:
                    raise KafkaError(ctx.services.leaders.missing_code(topic.topic, asked.partition))
                log = partition.readable_log(asked.current_leader_epoch)
                answer.leader_epoch, answer.end_offset = log.offset_for_epoch(asked.leader_epoch)
            except KafkaError as refusal:
                answer.error_code = int(refusal.code)
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
    return OffsetForLeaderEpochResponse(topics=topics)
