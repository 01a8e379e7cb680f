"""An answer that comes later, without the cost of a task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Deferred:
    """An answer that comes later, without the cost of a task: the handler keeps it and calls `resolve` once.

    `exclusive`: nothing else on the connection may start meanwhile. A Produce that is appended and waits for the
    watermark is not exclusive: the next Produce works ahead of its reply.
    """

    __slots__ = ("_listener", "abandoned", "exclusive", "resolved", "response")

    def __init__(self, *, exclusive: bool = True) -> None:
        self.exclusive = exclusive
        self.resolved = False
        self.response: Any = None
        #: Called when the connection has gone and nobody will read the answer.
        self.abandoned: Callable[[], None] | None = None
        self._listener: Callable[[Any], None] | None = None

    def resolve(self, response: Any) -> None:
        """Give the answer. None: no reply is due."""
        if self.resolved:
            return
        self.resolved = True
        self.response = response
        self.abandoned = None
        # Listener and answer refer to each other. Unless one lets go, only the garbage collector can free them.
        listener, self._listener = self._listener, None
        if listener is not None:
            listener(response)

    def listen(self, listener: Callable[[Any], None]) -> None:
        if self.resolved:
            listener(self.response)
        else:
            self._listener = listener

    def abandon(self) -> None:
        self.resolved = True
        self._listener = None
        abandoned, self.abandoned = self.abandoned, None
        if abandoned is not None:
            abandoned()
