"""SyncGroup (key 14): the leader of a classic group hands in the assignment, everybody receives theirs.

1  throttle time
3  static members
4  flexible
5  protocol type and name, which must be the group's (KIP-559)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pylogd.coordinators.shard.effects import Reply
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from pylogd.broker.network.context import RequestContext
    from pylogd.runtime.deferred import Deferred


def handle(ctx: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse | Deferred:
    if ctx.version >= 5 and (request.protocol_type is None or request.protocol_name is None):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not request.group_id:
        return SyncGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    shard = ctx.services.groups.shard_of(request.group_id)
    reply = Reply(lambda code, message: SyncGroupResponse(error_code=code))
    shard.submit(lambda effects: shard.state.sync(effects, reply, request), reply, writes=False)
    return reply
