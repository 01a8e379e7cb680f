"""Replies that have their place in a connection's order before they have bytes.

Four kinds share the queue of a connection: that of a request on the full path, here, and those of repeated Produce,
OffsetCommit and Fetch requests, with their templates.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pylogd.broker.network.context import RequestContext
    from pylogd.broker.network.dispatch import Route
    from pylogd.runtime.deferred import Deferred


class PendingReply(Protocol):
    """A reply with its place in the order. Whoever gives it its bytes tells the connection (`settled`)."""

    #: None until they are known; empty when no reply is due.
    chunks: list[Any] | None

    def abandon(self) -> None:
        """The connection has gone: nobody waits for it any longer."""


class FullReply:
    """The reply to a request that was decoded and handled."""

    __slots__ = ("chunks", "context", "deferred", "request", "route", "task", "throttle_ms")

    def __init__(self, route: Route, context: RequestContext, request: Any, throttle_ms: int) -> None:
        self.route = route
        self.context = context
        #: For an error response.
        self.request = request
        self.throttle_ms = throttle_ms
        self.chunks: list[Any] | None = None
        #: What the handler gave: an answer to come, or a coroutine.
        self.deferred: Deferred | None = None
        self.task: asyncio.Task[Any] | None = None

    def abandon(self) -> None:
        if self.deferred is not None:
            self.deferred.abandon()
