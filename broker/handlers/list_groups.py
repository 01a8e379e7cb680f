"""ListGroups (key 16): the groups that this broker coordinates.

1  throttle time
3  flexible
4  filter by state; the state in the response
5  filter by type; the type in the response
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pylogd.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from pylogd.broker.network.context import RequestContext
    from pylogd.runtime.deferred import Deferred


def handle(ctx: RequestContext, request: ListGroupsRequest) -> Deferred:
    states = {state.strip().lower() for state in request.states_filter}
    kinds = {kind.lower() for kind in request.types_filter}

    def finish(parts: list[Any]) -> ListGroupsResponse:
        return ListGroupsResponse(groups=[group for part in parts if part is not None for group in part])

    listing: Deferred = ctx.services.groups.everywhere(
        lambda shard, effects, reply: shard.state.list(effects, reply, states, kinds), finish
    )
    return listing
