"""Who waits for a partition to move: producers for the high watermark, long polls for new data, deletions of records
for the followers.

A produce waits as (offset, deadline): no payload is held. With acks=all it waits for the high watermark, with acks=1
and `flush.messages=1` for the leader's flushed offset. Offsets are appended in order, so the queue is sorted, and its
first entry tells whether a new high watermark releases anybody. When leadership ends or its epoch changes, every
waiter of the old epoch fails: what it appended may be truncated.

Every wait has a deadline, and all waits of a partition share one timer. It is set for the earliest deadline and left
alone when that wait ends in time, which is nearly always: so a wait costs no timer of its own.

A fetch registers with every partition it planned. It is woken at most once per turn of the event loop, however many
appends that turn brought, and decides itself whether that is enough.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from pylogd.protocol.errors import ErrorCode

if TYPE_CHECKING:
    import asyncio

#: The deadline of a wait that may take for ever.
NEVER_S = float("inf")


class Waiter(Protocol):
    """Who waits for one or several partitions to reach an offset. It hears of every wait exactly once, unless it
    abandons it."""

    def acknowledged(self, slot: int, code: ErrorCode) -> None:
        """The wait with this `slot` is over: reached (NONE), failed, or REQUEST_TIMED_OUT."""


class FetchWaiter(Protocol):
    """A long poll."""

    def woken(self) -> None:
        """A partition of the plan changed: new data, another log start, a new leader epoch, or it is gone."""


#: (required offset, deadline in seconds of the event loop, waiter, slot)
Entry = tuple[int, float, Waiter, int]


class Waiters:
    """The waiters of one partition."""

    __slots__ = ("_loop", "_over", "_timer", "_timer_at_s", "acks", "fetches", "flushes", "starts")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_s = NEVER_S
        #: Who waits for the high watermark, sorted by offset.
        self.acks: deque[Entry] = deque()
        #: Who waits for the flushed offset, sorted by offset.
        self.flushes: deque[Entry] = deque()
        #: Who waits for the low watermark (deleted records gone everywhere), sorted by offset.
        self.starts: deque[Entry] = deque()
        #: Waits that failed or timed out, while their waiters are told one after the other.
        self._over: deque[tuple[Waiter, int, ErrorCode]] = deque()
        #: A dict as an ordered set: long polls are served in the order they came.
        self.fetches: dict[FetchWaiter, None] = {}

    # -- waits for an offset

    def wait(self, queue: deque[Entry], offset: int, deadline_s: float, waiter: Waiter, slot: int) -> None:
        """Tell `waiter` once `queue` is settled up to `offset`, or at the deadline."""
        if queue and queue[-1][0] > offset:
            _insert(queue, (offset, deadline_s, waiter, slot))
        else:
            queue.append((offset, deadline_s, waiter, slot))
        if deadline_s < self._timer_at_s:
            self._set_timer(deadline_s)

    def abandon(self, waiter: Waiter) -> None:
        """Tell `waiter` nothing any more. The queues are changed in place, because one of them may just be settled: a
        reply that its client does not take ends the connection, and with it its other waits."""
        for queue in (self.acks, self.flushes, self.starts):
            left = [entry for entry in queue if entry[2] is not waiter]
            if len(left) < len(queue):
                queue.clear()
                queue.extend(left)
        if self._over:
            told = [entry for entry in self._over if entry[0] is not waiter]
            self._over.clear()
            self._over.extend(told)

    def settle(self, queue: deque[Entry], reached: int, code: ErrorCode) -> None:
        """Release everybody in `queue` who waited for `reached` or less."""
        while queue and queue[0][0] <= reached:
            _, _, waiter, slot = queue.popleft()
            waiter.acknowledged(slot, code)

    def fail(self, code: ErrorCode) -> None:
        """Release everybody with an error, and wake every fetch so that it sees what happened."""
        for queue in (self.acks, self.flushes, self.starts):
            self._over.extend((waiter, slot, code) for _, _, waiter, slot in queue)
            queue.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._timer_at_s = None, NEVER_S
        self._tell()
        self.wake()

    def _set_timer(self, deadline_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline_s, self._expire)
        self._timer_at_s = deadline_s

    def _expire(self) -> None:
        """Release everybody whose deadline has come; the timer is set for the earliest of the others."""
        # A timer may fire early by a rounding error.
        now_s = max(self._loop.time(), self._timer_at_s)
        self._timer, self._timer_at_s = None, NEVER_S
        next_s = NEVER_S
        for queue in (self.acks, self.flushes, self.starts):
            left = []
            for entry in queue:
                _, deadline_s, waiter, slot = entry
                if deadline_s <= now_s:
                    self._over.append((waiter, slot, ErrorCode.REQUEST_TIMED_OUT))
                    continue
                left.append(entry)
                next_s = min(next_s, deadline_s)
            queue.clear()
            queue.extend(left)
        if next_s < NEVER_S:
            self._set_timer(next_s)
        self._tell()

    def _tell(self) -> None:
        over = self._over
        while over:
            waiter, slot, code = over.popleft()
            waiter.acknowledged(slot, code)

    # -- long polls

    def wake(self) -> None:
        for waiter in tuple(self.fetches):
            if waiter in self.fetches:
                waiter.woken()


def _insert(queue: deque[Entry], entry: Entry) -> None:
    """Put the entry where the queue stays sorted. Only a duplicate of an older batch comes late."""
    later = []
    while queue and queue[-1][0] > entry[0]:
        later.append(queue.pop())
    queue.append(entry)
    queue.extend(reversed(later))
