"""ConsumerGroupDescribe (key 69): state and members of groups of the new consumer protocol.

1  whether a member speaks the classic or the consumer protocol
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pylogd.broker.handlers.consumer_group_heartbeat import check_enabled
from pylogd.metadata.operations import GROUP_OPERATIONS
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

if TYPE_CHECKING:
    from pylogd.broker.network.context import RequestContext
    from pylogd.runtime.deferred import Deferred


def handle(ctx: RequestContext, request: ConsumerGroupDescribeRequest) -> Deferred:
    check_enabled(ctx)

    def finish(parts: list[Any]) -> ConsumerGroupDescribeResponse:
        groups = [group for part in parts for group in part]
        if request.include_authorized_operations:
            for group in groups:
                if group.error_code == ErrorCode.NONE:
                    group.authorized_operations = GROUP_OPERATIONS
        return ConsumerGroupDescribeResponse(groups=groups)

    description: Deferred = ctx.services.groups.by_shard(
        request.group_ids,
        lambda shard, effects, reply, ids: shard.state.describe_consumer_groups(effects, reply, ids),
        _refused,
        finish,
    )
    return description


def _refused(ids: list[str], code: ErrorCode, message: str | None) -> list[DescribedGroup]:
    return [DescribedGroup(int(code), message, group_id) for group_id in ids]
