"""DescribeGroups (key 15): state and members of classic groups.

1  throttle time
3  authorized operations
4  instance ids of static members
5  flexible
6  GROUP_ID_NOT_FOUND where older versions describe a dead group
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pylogd.metadata.operations import GROUP_OPERATIONS
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

if TYPE_CHECKING:
    from pylogd.broker.network.context import RequestContext
    from pylogd.runtime.deferred import Deferred


def handle(ctx: RequestContext, request: DescribeGroupsRequest) -> Deferred:
    version = ctx.version
    operations = version >= 3 and request.include_authorized_operations

    def finish(parts: list[Any]) -> DescribeGroupsResponse:
        groups = [group for part in parts for group in part]
        if operations:
            for group in groups:
                if group.error_code == ErrorCode.NONE:
                    group.authorized_operations = GROUP_OPERATIONS
        return DescribeGroupsResponse(groups=groups)

    description: Deferred = ctx.services.groups.by_shard(
        request.groups,
        lambda shard, effects, reply, ids: shard.state.describe(effects, reply, ids, version),
        _refused,
        finish,
    )
    return description


def _refused(ids: list[str], code: ErrorCode, message: str | None) -> list[DescribedGroup]:
    return [DescribedGroup(group_id=group_id, error_code=int(code)) for group_id in ids]
