"""OffsetDelete (key 47): forget committed offsets of a group for topics it is not subscribed to. One version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pylogd.coordinators.shard.effects import Reply
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from pylogd.broker.network.context import RequestContext
    from pylogd.runtime.deferred import Deferred


def handle(ctx: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse | Deferred:
    if not request.group_id:
        return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    shard = ctx.services.groups.shard_of(request.group_id)
    response = OffsetDeleteResponse()
    existing = []
    for topic in request.topics:
        known = ctx.services.image.topics.get(topic.name)
        count = 0 if known is None else len(known.partitions)
        missing = [each.partition_index for each in topic.partitions if not 0 <= each.partition_index < count]
        if missing:
            code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            response.topics.append(
                OffsetDeleteResponseTopic(topic.name, [OffsetDeleteResponsePartition(index, code) for index in missing])
            )
        topic.partitions = [each for each in topic.partitions if 0 <= each.partition_index < count]
        if topic.partitions:
            existing.append(topic)
    request.topics = existing
    reply = Reply(lambda code, message: OffsetDeleteResponse(error_code=code))
    shard.submit(lambda effects: shard.state.delete_offsets(effects, reply, request, response), reply)
    return reply
