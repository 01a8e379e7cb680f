"""LeaveGroup (key 13): members leave a classic group, or an administrator removes static ones.

1  throttle time
3  several members at once, by member id or instance id
4  flexible
5  the client says why
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pylogd.coordinators.shard.effects import Reply
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

if TYPE_CHECKING:
    from pylogd.broker.network.context import RequestContext
    from pylogd.runtime.deferred import Deferred

_MANY = 3


def handle(ctx: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse | Deferred:
    if not request.group_id:
        return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    shard = ctx.services.groups.shard_of(request.group_id)
    if ctx.version < _MANY:
        request.members = [MemberIdentity(member_id=request.member_id)]

    def refuse(code: ErrorCode, message: str | None) -> LeaveGroupResponse:
        if code is not ErrorCode.UNKNOWN_MEMBER_ID:
            return LeaveGroupResponse(error_code=code)
        # The group does not exist, so none of the members does.
        return LeaveGroupResponse(
            members=[
                MemberResponse(member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=code)
                for each in request.members
            ]
        )

    reply = _OneMember(refuse) if ctx.version < _MANY else Reply(refuse)
    shard.submit(lambda effects: shard.state.leave(effects, reply, request), reply)
    return reply


class _OneMember(Reply):
    """Versions before 3 have no list of members: the error of the only one is the error of the response."""

    __slots__ = ()

    def resolve(self, response: Any) -> None:
        if response.error_code == ErrorCode.NONE and response.members:
            response.error_code = response.members[0].error_code
        response.members = []
        super().resolve(response)
