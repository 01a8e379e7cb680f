"""Heartbeat (key 12): a member of a classic group is alive, and asks whether a rebalance is on.

1  throttle time
3  static members
4  flexible
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pylogd.coordinators.shard.effects import Reply
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from pylogd.broker.network.context import RequestContext
    from pylogd.runtime.deferred import Deferred


def handle(ctx: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse | Deferred:
    if not request.group_id:
        return HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    try:
        shard = ctx.services.groups.shard_of(request.group_id)
    except KafkaError as refusal:
        if refusal.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return HeartbeatResponse()  # no session ends while its group is loaded
        raise
    reply = Reply(lambda code, message: HeartbeatResponse(error_code=code))
    shard.submit(lambda effects: shard.state.heartbeat(effects, reply, request), reply, writes=False)
    return reply
