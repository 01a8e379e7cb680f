"""Which peers may be sent a request: one in flight each, a pause after a failure, a new try after silence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pylogd.controller.raft.voters import Node

if TYPE_CHECKING:
    from random import Random

NEVER_MS = 1 << 62


class _Connection:
    __slots__ = ("backoff_until_ms", "correlation_id", "timeout_at_ms")

    def __init__(self) -> None:
        self.correlation_id: int | None = None
        self.timeout_at_ms = 0
        self.backoff_until_ms = 0


class Connections:
    """By node id. A response whose correlation id is not the one in flight is not expected any more."""

    def __init__(self, bootstrap: list[Node], retry_backoff_ms: int, request_timeout_ms: int, rng: Random) -> None:
        self.bootstrap = bootstrap
        self._retry_backoff_ms = retry_backoff_ms
        self._request_timeout_ms = request_timeout_ms
        self._rng = rng
        self._by_id: dict[int, _Connection] = {}
        self._next_correlation_id = 0

    def in_flight(self, node_id: int, now_ms: int) -> bool:
        """Whether an answer is still waited for."""
        found = self._by_id.get(node_id)
        return found is not None and found.correlation_id is not None and now_ms < found.timeout_at_ms

    def any_in_flight(self, now_ms: int) -> bool:
        return any(self.in_flight(node_id, now_ms) for node_id in self._by_id)

    def timed_out(self, node_id: int, now_ms: int) -> bool:
        found = self._by_id.get(node_id)
        return found is not None and found.correlation_id is not None and now_ms >= found.timeout_at_ms

    def backing_off(self, node_id: int, now_ms: int) -> bool:
        found = self._by_id.get(node_id)
        return found is not None and found.correlation_id is None and now_ms < found.backoff_until_ms

    def ready(self, node_id: int, now_ms: int) -> bool:
        return not self.in_flight(node_id, now_ms) and not self.backing_off(node_id, now_ms)

    def ready_at_ms(self, node_id: int, now_ms: int) -> int:
        """When to look again at a node that is not ready."""
        found = self._by_id.get(node_id)
        if found is None:
            return now_ms
        return found.timeout_at_ms if found.correlation_id is not None else found.backoff_until_ms

    def sent(self, node_id: int, now_ms: int) -> int:
        """Notes a request; returns its correlation id."""
        found = self._by_id.setdefault(node_id, _Connection())
        self._next_correlation_id += 1
        found.correlation_id = self._next_correlation_id
        found.timeout_at_ms = now_ms + self._request_timeout_ms
        return self._next_correlation_id

    def expects(self, node_id: int, correlation_id: int) -> bool:
        found = self._by_id.get(node_id)
        return found is not None and found.correlation_id == correlation_id

    def answered(self, node_id: int, correlation_id: int, handled: bool, now_ms: int) -> None:
        if not self.expects(node_id, correlation_id):
            return
        found = self._by_id[node_id]
        found.correlation_id = None
        found.backoff_until_ms = now_ms if handled else now_ms + self._retry_backoff_ms

    def reset(self, node_id: int) -> None:
        self._by_id.pop(node_id, None)

    def reset_all(self) -> None:
        self._by_id.clear()

    def ready_bootstrap(self, now_ms: int) -> Node | None:
        """Any bootstrap server, while nothing is in flight to anybody."""
        if not self.bootstrap or self.any_in_flight(now_ms):
            return None
        first = self._rng.randrange(len(self.bootstrap))
        for at in range(len(self.bootstrap)):
            node = self.bootstrap[(first + at) % len(self.bootstrap)]
            if self.ready(node.id, now_ms):
                return node
        return None

    def bootstrap_at_ms(self, now_ms: int) -> int:
        """When a bootstrap server may be ready."""
        if not self.bootstrap:
            return NEVER_MS
        for node_id in self._by_id:
            if self.in_flight(node_id, now_ms):
                return self.ready_at_ms(node_id, now_ms)
        soonest = NEVER_MS
        for node in self.bootstrap:
            soonest = min(soonest, self.ready_at_ms(node.id, now_ms))
        return max(soonest, now_ms)
