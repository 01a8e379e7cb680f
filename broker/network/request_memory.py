"""The memory for long requests: what all connections may hold together, and what one of them holds."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pylogd.runtime.stream import Stream

#: Requests up to this length are read without asking for a share.
FREE_BYTES = 1 << 16
#: Once others wait for memory, a long request must arrive at this rate after the first seconds.
_ARRIVAL_BYTES_PER_S_MIN = 1 << 14
_PATIENCE_S = 5.0


class Memory:
    """The bytes that long requests of all clients may hold while they are read.

    A request is admitted while anything is left, and may then overdraw, so that one larger than the limit is served
    and a limit can never leave two half-read requests waiting for each other. Who is admitted and then dawdles is hung
    up on when others wait: a few announcements must not keep everybody out.
    """

    __slots__ = ("_waiting", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._waiting: deque[Share] = deque()

    def take(self, size: int) -> bool:
        if self.used >= self.limit:
            return False
        self.used += size
        return True

    def give(self, size: int) -> None:
        self.used -= size
        while self._waiting and self.used < self.limit:
            self._waiting.popleft().granted()

    @property
    def contended(self) -> bool:
        """Whether somebody waits."""
        return bool(self._waiting)

    def wait(self, share: Share) -> None:
        self._waiting.append(share)


class Share:
    """What one connection holds for the request that it is reading."""

    __slots__ = ("_held_since_s", "_memory", "_stream", "held", "waiting")

    def __init__(self, memory: Memory, stream: Stream) -> None:
        self._memory = memory
        self._stream = stream
        self._held_since_s = 0.0
        self.held = 0
        #: In the queue for memory.
        self.waiting = False

    def take(self, size: int, now_s: float) -> None:
        """For a request of `size` bytes; the stream is paused until there is memory for it."""
        if self._memory.take(size):
            self.held = size
            self._held_since_s = now_s
            return
        if not self.waiting:
            self.waiting = True
            self._memory.wait(self)
        self._stream.pause()

    def granted(self) -> None:
        """There is memory again; the connection takes its share when it looks at its request once more."""
        self.waiting = False
        if not self._stream.closed:
            self._stream.resume()

    def give_back(self) -> None:
        held, self.held = self.held, 0
        self._memory.give(held)

    def dawdles(self, now_s: float) -> bool:
        """Whether memory is held for a request that hardly arrives."""
        held_s = now_s - self._held_since_s
        return self.held > 0 and held_s > _PATIENCE_S and self._stream.buffered < held_s * _ARRIVAL_BYTES_PER_S_MIN
