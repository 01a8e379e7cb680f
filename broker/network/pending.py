"""Replies that have their place in a connection's order before they have bytes.

Four kinds share the queue of a connection: that of a request on the full path, here, and those of repeated Produce,
OffsetCommit and Fetch requests, with their templates.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from pylogd.broker.network.context import ClientConnection, CloseConnection
from pylogd.broker.network.dispatch import failure_response
from pylogd.protocol.errors import ProtocolError
from pylogd.runtime.deferred import Deferred

if TYPE_CHECKING:
    from pylogd.broker.network.context import RequestContext
    from pylogd.broker.network.dispatch import Route


class PendingReply(Protocol):
    """A reply with its place in the order. Whoever gives it its bytes tells the connection (`settled`)."""

    #: None until they are known; empty when no reply is due.
    chunks: list[Any] | None

    def abandon(self) -> None:
        """The connection has gone: nobody waits for it any longer."""


class ReplyingConnection(ClientConnection, Protocol):
    """What replies ask of their connection."""

    closed: bool
    pending: deque[PendingReply]

    def settled(self, reply: PendingReply) -> None:
        """`reply` has its bytes."""

    def fill(self, reply: PendingReply, route: Route, correlation_id: int, response: Any, throttle_ms: int) -> None:
        """Encode the response of a pending reply; this settles it. None when no reply is due."""

    def close(self, reason: str | None = None) -> None:
        """Hang up."""


class FullReply:
    """The reply to a request that was decoded and handled."""

    __slots__ = ("_connection", "_context", "_deferred", "_request", "_route", "_task", "_throttle_ms", "chunks")

    def __init__(
        self, connection: ReplyingConnection, route: Route, context: RequestContext, request: Any, throttle_ms: int
    ) -> None:
        self._connection = connection
        self._route = route
        self._context = context
        #: For an error response.
        self._request = request
        self._throttle_ms = throttle_ms
        self.chunks: list[Any] | None = None
        #: What the handler gave: an answer to come, or a coroutine.
        self._deferred: Deferred | None = None
        self._task: asyncio.Future[Any] | None = None

    def wait_for(self, answer: Any) -> None:
        """What the handler gave will give the response."""
        if isinstance(answer, Deferred):
            if not answer.exclusive:
                # Appended: its payload must not stay in memory while the reply waits.
                self._request = None
            self._deferred = answer
            answer.listen(self._resolved)
        elif inspect.isawaitable(answer):
            self._task = asyncio.ensure_future(answer, loop=self._connection.loop)
            self._task.add_done_callback(self._task_done)
        else:
            raise TypeError(f"the handler of {self._route.key.name} returned {type(answer).__name__}")

    def abandon(self) -> None:
        if self._deferred is not None:
            self._deferred.abandon()

    def _task_done(self, task: asyncio.Future[Any]) -> None:
        if task.cancelled():
            if not self._connection.closed:
                self._connection.close("a request was cancelled")
            return
        failure = task.exception()
        if failure is None:
            self._resolved(task.result())
            return
        try:
            response = failure_response(self._route, self._context, self._request, failure)
        except (ProtocolError, CloseConnection) as refusal:
            self._connection.close(str(refusal))
            return
        self._resolved(response)

    def _resolved(self, response: Any) -> None:
        self._request = self._deferred = None
        self._connection.fill(self, self._route, self._context.correlation_id, response, self._throttle_ms)
