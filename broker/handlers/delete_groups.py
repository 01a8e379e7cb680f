"""DeleteGroups (key 42): delete groups that have no members, with their offsets.

1  throttling after the response
2  flexible
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from pylogd.broker.network.context import RequestContext
    from pylogd.runtime.deferred import Deferred


def handle(ctx: RequestContext, request: DeleteGroupsRequest) -> Deferred:
    deletion: Deferred = ctx.services.groups.by_shard(
        dict.fromkeys(request.groups_names),
        lambda shard, effects, reply, ids: shard.state.delete(effects, reply, ids),
        _refused,
        lambda parts: DeleteGroupsResponse(results=[result for part in parts for result in part]),
        writes=True,
    )
    return deletion


def _refused(ids: list[str], code: ErrorCode, message: str | None) -> list[DeletableGroupResult]:
    return [DeletableGroupResult(group_id=group_id, error_code=int(code)) for group_id in ids]
