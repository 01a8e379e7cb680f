"""What an event wants to happen: records to write, replies to send, timers to set. Plain values, so that a decision can
be tested by looking at them; the shard carries them out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pylogd.broker.coordinator.records import CoordinatorRecord
from pylogd.broker.dispatch import Deferred
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.schema import Message

Event = Callable[["Effects"], None]


class Reply(Deferred):
    """A reply that a coordinator owes. `refuse(code, message)` makes the response for when it cannot be given."""

    __slots__ = ("refuse",)

    def __init__(self, refuse: Callable[[ErrorCode, str | None], Any]) -> None:
        super().__init__()
        self.refuse = refuse

    def fail(self, code: ErrorCode, message: str | None = None) -> None:
        self.resolve(self.refuse(code, message))


class Effects:
    """Filled by one event."""

    __slots__ = ("now_ms", "records", "replies", "timers")

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.records: list[CoordinatorRecord] = []
        self.replies: list[tuple[Any, Any]] = []
        #: name -> (delay, event), or None to cancel
        self.timers: dict[Any, tuple[int, Event] | None] = {}

    def write(self, key: Message, value: Message | None, version: int = 0) -> None:
        """Append a record; `version` is that of the value, None as value deletes the key."""
        self.records.append(CoordinatorRecord(key, value, version))

    def answer(self, reply: Any, response: Any) -> None:
        """Give `reply` its response once everything this event saw and wrote is committed."""
        self.replies.append((reply, response))

    def after(self, name: Any, delay_ms: int, event: Event) -> None:
        """Run `event` in `delay_ms`; a timer of the same name is replaced."""
        self.timers[name] = (delay_ms, event)

    def cancel(self, name: Any) -> None:
        self.timers[name] = None
