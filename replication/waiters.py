"""Who waits for a partition to move: producers for the high watermark, long polls for new data, deletions of records
for the followers.

A produce waits as (offset, leader epoch): no payload is held. With acks=all it waits for the high watermark, with
acks=1 and `flush.messages=1` for the leader's flushed offset. Offsets are appended in order, so the queue is sorted and
one look at its head tells whether anybody is served by a new watermark. When leadership ends or its epoch changes,
every waiter of the old epoch fails: what it appended may be truncated.

A fetch registers with every partition it planned. It is woken at most once per turn of the event loop, however many
appends that turn brought, and decides itself whether that is enough.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from pylogd.protocol.errors import ErrorCode


class AckWaiter(Protocol):
    """A produce request that waits for one or several partitions."""

    def acknowledged(self, slot: int, code: ErrorCode) -> None:
        """The partition in `slot` of the request is settled: replicated (NONE) or failed."""


class FetchWaiter(Protocol):
    """A long poll."""

    def woken(self) -> None:
        """Some planned partition changed: new data, a moved start, a new epoch, or gone."""


#: (required offset, leader epoch, waiter, slot)
Entry = tuple[int, int, AckWaiter, int]


class Waiters:
    """The waiters of one partition."""

    __slots__ = ("acks", "fetches", "flushes", "starts")

    def __init__(self) -> None:
        #: Who waits for the high watermark, sorted by offset.
        self.acks: deque[Entry] = deque()
        #: Who waits for the flushed offset, sorted by offset.
        self.flushes: deque[Entry] = deque()
        #: Who waits for the low watermark (deleted records gone everywhere), sorted by offset.
        self.starts: deque[Entry] = deque()
        #: A dict as an ordered set: long polls are served in the order they came.
        self.fetches: dict[FetchWaiter, None] = {}

    def await_ack(self, offset: int, epoch: int, waiter: AckWaiter, slot: int) -> None:
        """Tell `waiter` once the watermark has reached `offset`. A duplicate waits for the offset of its original."""
        _insert(self.acks, (offset, epoch, waiter, slot))

    def await_flush(self, offset: int, epoch: int, waiter: AckWaiter, slot: int) -> None:
        """Tell `waiter` once everything below `offset` is on the leader's disk."""
        _insert(self.flushes, (offset, epoch, waiter, slot))

    def await_start(self, offset: int, epoch: int, waiter: AckWaiter, slot: int) -> None:
        """Tell `waiter` once no living replica has records below `offset`."""
        _insert(self.starts, (offset, epoch, waiter, slot))

    def forget(self, waiter: AckWaiter) -> None:
        """A request that timed out is answered, or its client has gone; nothing may reach it any more. The queues stay
        the same ones: perhaps somebody is settling them, whose reply the client did not take."""
        for queue in (self.acks, self.flushes, self.starts):
            left = [entry for entry in queue if entry[2] is not waiter]
            if len(left) < len(queue):
                queue.clear()
                queue.extend(left)

    def settle(self, queue: deque[Entry], reached: int, code: ErrorCode) -> None:
        """Release every produce of `queue` that waited for `reached` or less."""
        while queue and queue[0][0] <= reached:
            _, _, waiter, slot = queue.popleft()
            waiter.acknowledged(slot, code)

    def fail(self, code: ErrorCode) -> None:
        """Release every produce with an error, and wake every fetch so that it sees what happened."""
        failed = [*self.acks, *self.flushes, *self.starts]
        self.acks.clear()
        self.flushes.clear()
        self.starts.clear()
        for _, _, waiter, slot in failed:
            waiter.acknowledged(slot, code)
        self.wake()

    def wake(self) -> None:
        for waiter in tuple(self.fetches):
            if waiter in self.fetches:
                waiter.woken()


def _insert(queue: deque[Entry], entry: Entry) -> None:
    """Append, or put before entries of higher offsets: only a duplicate of an older batch comes late."""
    later = []
    while queue and queue[-1][0] > entry[0]:
        later.append(queue.pop())
    queue.append(entry)
    queue.extend(reversed(later))
