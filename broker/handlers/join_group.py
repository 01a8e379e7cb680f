"""JoinGroup (key 11): a member of a classic group joins or rejoins; the reply comes when the rebalance is complete.

1  a rebalance time-out of its own
2  throttle time
4  a new member is answered MEMBER_ID_REQUIRED with its id, and joins again with it
5  static members (group instance id)
6  flexible
7  protocol type in the response, null protocol name
8  the client says why it joins
9  a leader that comes back may be told to skip its assignment (KIP-814)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pylogd.coordinators.groups.group import Caller
from pylogd.coordinators.shard.effects import Reply
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from pylogd.broker.network.context import RequestContext
    from pylogd.runtime.deferred import Deferred


#: Before, a protocol name cannot be null.
_NULL_NAME = 7


def handle(ctx: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse | Deferred:
    config = ctx.services.config
    if not request.group_id:
        return _refusal(ctx.version, ErrorCode.INVALID_GROUP_ID, request.member_id)
    shortest, longest = config["group.min.session.timeout.ms"], config["group.max.session.timeout.ms"]
    if not shortest <= request.session_timeout_ms <= longest:
        return _refusal(ctx.version, ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id)
    shard = ctx.services.groups.shard_of(request.group_id)
    caller = Caller(ctx.version, ctx.caller.client_id or "", f"/{ctx.caller.host}")
    kind = Reply if ctx.version >= _NULL_NAME else _NamedReply
    reply = kind(lambda code, message: _refusal(ctx.version, code))
    shard.submit(lambda effects: shard.state.join(effects, reply, request, caller), reply, writes=False)
    return reply


class _NamedReply(Reply):
    __slots__ = ()

    def resolve(self, response: Any) -> None:
        if response.protocol_name is None:
            response.protocol_name = ""
        super().resolve(response)


def _refusal(version: int, code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    name = None if version >= _NULL_NAME else ""
    return JoinGroupResponse(error_code=code, protocol_name=name, member_id=member_id)
