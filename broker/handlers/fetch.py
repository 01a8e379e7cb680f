"""Fetch (key 1): log data for consumers and followers, straight from the files.

 4  isolation level, last stable offset, aborted transactions
 5  log start offset
 7  sessions (KIP-227)
 9  current leader epoch (KIP-320)
11  rack id, preferred read replica (KIP-392); consumers may read from followers
12  flexible; last fetched epoch and diverging epoch (KIP-595)
13  topic ids (KIP-516)
15  replica state instead of replica id (KIP-903)
16  current leader and node endpoints (KIP-951)
17  directory id of the follower (KIP-853)
18  high watermark the follower knows (KIP-1166)

A request that finds less than `min_bytes` waits: `broker/fetch/poll.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pylogd.broker.fetch.fetch_sessions import IncrementalContext, open_context
from pylogd.broker.fetch.follower_view import FollowerView
from pylogd.broker.fetch.poll import FollowerPoll, Poll, fetch_params, resources, respond

if TYPE_CHECKING:
    from pylogd.broker.fetch.fetch_plan import FetchParams
    from pylogd.broker.network.context import RequestContext
    from pylogd.broker.services import Services
    from pylogd.protocol.messages.fetch import FetchRequest, FetchResponse
    from pylogd.runtime.deferred import Deferred

__all__ = ["handle", "resources"]


def handle(ctx: RequestContext, request: FetchRequest) -> FetchResponse | Deferred:
    version = ctx.version
    replica_id = request.replica_id if version < 15 else request.replica_state.replica_id
    services = ctx.services
    fetch_context = open_context(services.sessions, services.image, version, request, replica_id >= 0)
    if fetch_context.error is not None:
        return fetch_context.respond([])
    params = fetch_params(ctx, request)
    if replica_id >= 0 and type(fetch_context) is IncrementalContext and version >= 15:
        view = _follower_view(services, fetch_context, params)
        maybe = view.start(params, fetch_context.named)
        poll: Poll = FollowerPoll(ctx, fetch_context, view, params, request.max_wait_ms)
        if maybe is None and request.max_wait_ms > 0 and params.min_bytes > 0:
            return poll.wait()
        plan = maybe or view.replan(params, nowait=True)
    else:
        targets = list(fetch_context.targets())
        plan = services.planner.plan(targets, params, first=True)
        if not targets:
            return respond(ctx, fetch_context, plan)
        poll = Poll(ctx, fetch_context, targets, params, request.max_wait_ms)
    if not plan.cold and (plan.size >= params.min_bytes or plan.urgent or request.max_wait_ms <= 0):
        return poll.respond(plan)
    return poll.start(plan)


def _follower_view(services: Services, fetch_context: IncrementalContext, params: FetchParams) -> FollowerView:
    session = fetch_context.session
    view = session.view
    if view is None:
        services.sessions.remove_older(params.replica_id, params.replica_epoch)
        view = session.view = FollowerView(services.planner, params.replica_id, params.replica_epoch, session.targets)
    return view
