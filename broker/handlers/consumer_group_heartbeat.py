"""ConsumerGroupHeartbeat (key 68): a member of a consumer group joins, stays, changes its subscription, or leaves
(KIP-848).

1  patterns, matched by the broker; the member makes its own id
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pylogd.coordinators.groups.group import Caller
from pylogd.coordinators.shard.effects import Reply
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from pylogd.broker.network.context import RequestContext
    from pylogd.runtime.deferred import Deferred


def handle(ctx: RequestContext, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse | Deferred:
    if not request.group_id.strip():
        code = ErrorCode.INVALID_REQUEST
        return ConsumerGroupHeartbeatResponse(error_code=code, error_message="GroupId can't be empty.")
    check_enabled(ctx)
    shard = ctx.services.groups.shard_of(request.group_id)
    caller = Caller(ctx.version, ctx.caller.client_id or "", f"/{ctx.caller.host}")
    reply = Reply(lambda code, message: ConsumerGroupHeartbeatResponse(error_code=code, error_message=message))
    shard.submit(lambda effects: shard.state.consumer.heartbeat(effects, reply, request, caller), reply, writes=False)
    return reply


def check_enabled(ctx: RequestContext) -> None:
    """The cluster's group.version has the protocol, and the broker allows it."""
    finalized = ctx.services.image.features.get("group.version", 0) >= 1
    if not finalized or "consumer" not in ctx.services.config["group.coordinator.rebalance.protocols"]:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
