"""A Fetch under way: what holds for all of its partitions, its answer, and the wait for records.

A request is planned at once. With less than `min_bytes` it waits for any of its partitions to move, or for
`max_wait_ms`, and is planned again; errors and diverging epochs are answered without waiting.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from pylogd.broker.fetch.fetch_plan import CONSUMER, FetchParams, Plan, warm
from pylogd.broker.fetch.isolation import reads_committed
from pylogd.broker.gate.gate import ResourceKind
from pylogd.broker.network.client_endpoints import add_leader_endpoint
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages.fetch import LeaderIdAndEpoch, NodeEndpoint
from pylogd.runtime.deferred import Deferred

if TYPE_CHECKING:
    from pylogd.broker.fetch.fetch_sessions import FetchContext, FetchTarget
    from pylogd.broker.fetch.follower_view import FollowerView
    from pylogd.broker.gate.gate import Resource
    from pylogd.broker.network.context import RequestContext
    from pylogd.protocol.messages.fetch import FetchRequest, FetchResponse
    from pylogd.replication.partition import Partition

#: Plans made with the help of a worker before the event loop reads itself, should the page cache be that small.
_WARM_ATTEMPTS = 8
_STALE_LEADER = (int(ErrorCode.NOT_LEADER_OR_FOLLOWER), int(ErrorCode.FENCED_LEADER_EPOCH))


def resources(request: FetchRequest) -> tuple[Resource, ...]:
    """The topics that a request names; a session knows others."""
    return tuple((ResourceKind.TOPIC, topic.topic or topic.topic_id) for topic in request.topics)


def fetch_params(ctx: RequestContext, request: FetchRequest) -> FetchParams:
    version = ctx.version
    state = request.replica_state
    replica_id = request.replica_id if version < 15 else state.replica_id
    max_bytes = min(request.max_bytes, ctx.services.config["fetch.max.bytes"])
    return FetchParams(
        by_id=version >= 13,
        replica_id=replica_id,
        replica_epoch=state.replica_epoch,
        # A consumer that tells its rack may be served by any replica.
        leader_only=replica_id >= 0 or (replica_id == -1 and version < 11),
        read_committed=reads_committed(request.isolation_level),
        min_bytes=min(request.min_bytes, max_bytes),
        max_bytes=max_bytes,
        now_ms=ctx.services.clock.monotonic_ms() if replica_id >= 0 else 0,
        rack=_rack(ctx, request) if replica_id == CONSUMER and request.rack_id else "",
    )


def _rack(ctx: RequestContext, request: FetchRequest) -> str:
    """The consumer's rack, if this broker sends consumers to the replica next to them."""
    selector = ctx.services.config["replica.selector.class"] or ""
    return request.rack_id if selector.rpartition(".")[2] == "RackAwareReplicaSelector" else ""


def respond(ctx: RequestContext, fetch_context: FetchContext, plan: Plan) -> FetchResponse:
    version = ctx.version
    endpoints: dict[int, Any] = {}
    if plan.urgent:
        for target, answer in plan.answers:
            code = answer.error_code
            if version <= 5 and code == ErrorCode.KAFKA_STORAGE_ERROR:
                # Clients of that age do not know the code; this one makes them ask for metadata and retry.
                answer.error_code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            elif version >= 16 and code in _STALE_LEADER:
                leader, epoch = ctx.services.leaders.current(*target.key)
                answer.current_leader = LeaderIdAndEpoch(leader, epoch)
                add_leader_endpoint(ctx, leader, endpoints, NodeEndpoint)
    response = fetch_context.respond(plan.answers)
    if endpoints:
        response.node_endpoints = list(endpoints.values())
    return response


class Poll:
    """A Fetch that waits: for data, or for a worker to find where its data starts."""

    __slots__ = (
        "_ctx",
        "_deadline",
        "_deferred",
        "_fetch_context",
        "_params",
        "_partitions",
        "_targets",
        "_timer",
        "_warm_attempts",
    )

    def __init__(
        self,
        ctx: RequestContext,
        fetch_context: FetchContext,
        targets: list[FetchTarget],
        params: FetchParams,
        max_wait_ms: float,
    ) -> None:
        self._ctx = ctx
        self._fetch_context = fetch_context
        self._targets = targets
        self._params = params
        self._deferred = Deferred()
        self._deferred.abandoned = self._leave
        self._partitions: list[Partition] = []
        self._warm_attempts = 0
        self._deadline = ctx.connection.loop.time() + max(max_wait_ms, 0) / 1000
        self._timer: asyncio.TimerHandle | None = None

    def start(self, plan: Plan) -> Deferred:
        self._decide(plan)
        return self._deferred

    def wait(self) -> Deferred:
        """There is nothing to send yet."""
        self._wait(self._deadline - self._ctx.connection.loop.time())
        return self._deferred

    def respond(self, plan: Plan) -> FetchResponse:
        return respond(self._ctx, self._fetch_context, plan)

    def woken(self) -> None:
        """Something moved in one of the partitions."""
        self._leave()
        self._replan()

    def _replan(self) -> None:
        if not self._deferred.resolved:
            nowait = self._warm_attempts < _WARM_ATTEMPTS
            self._decide(self._plan(nowait))

    def _plan(self, nowait: bool) -> Plan:
        return self._ctx.services.planner.plan(self._targets, self._params, first=False, nowait=nowait)

    def _decide(self, plan: Plan) -> None:
        loop = self._ctx.connection.loop
        left = self._deadline - loop.time()
        if plan.cold:
            self._warm_attempts += 1
            job = self._ctx.services.workers.offload(warm, plan.cold)
            job.add_done_callback(lambda _: self._replan())
        elif plan.size >= self._params.min_bytes or plan.urgent or left <= 0:
            self._deferred.resolve(self.respond(plan))
        else:
            self._wait(left)

    def _wait(self, left: float) -> None:
        replicas = self._ctx.services.replicas
        hosted = replicas.by_id if self._params.by_id else replicas.by_name
        for target in self._targets:
            partition = hosted.get(target.key)
            if partition is not None:
                partition.waiters.fetches[self] = None
                self._partitions.append(partition)
        self._timer = self._ctx.connection.loop.call_later(left, self._expire)

    def _expire(self) -> None:
        self._deadline = 0.0
        self._leave()
        self._replan()

    def _leave(self) -> None:
        """Stop waiting."""
        for partition in self._partitions:
            partition.waiters.fetches.pop(self, None)
        self._partitions.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class FollowerPoll(Poll):
    """A follower's Fetch: its session is told which partitions move, however many they are."""

    __slots__ = ("_scheduled", "_view")

    def __init__(
        self,
        ctx: RequestContext,
        fetch_context: FetchContext,
        view: FollowerView,
        params: FetchParams,
        max_wait_ms: float,
    ) -> None:
        super().__init__(ctx, fetch_context, [], params, max_wait_ms)
        self._view = view
        self._scheduled = False

    def respond(self, plan: Plan) -> FetchResponse:
        self._view.answered(plan)
        return super().respond(plan)

    def schedule(self) -> None:
        """Some partition moved; others may in the same turn."""
        if not self._scheduled:
            self._scheduled = True
            self._ctx.services.replicas.after_wake(self._run)

    def _run(self) -> None:
        self._scheduled = False
        if self._view.poll is self:
            self.woken()

    def _plan(self, nowait: bool) -> Plan:
        return self._view.replan(self._params, nowait)

    def _wait(self, left: float) -> None:
        self._view.poll = self
        self._timer = self._ctx.connection.loop.call_later(left, self._expire)

    def _leave(self) -> None:
        if self._view.poll is self:
            self._view.poll = None
        super()._leave()
