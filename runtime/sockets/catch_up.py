"""A reader that catches up: it sends data that is not in memory, and must not push out of the cache what others read.

Once it has sent a long run of such cold data, it drops the pages that it brought in, well behind itself: pages that are
still in a socket cannot go. It has caught up when as much was in memory already.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial

from pylogd.runtime.files import FileRange
from pylogd.runtime.sockets import pagecache
from pylogd.runtime.workers import Workers

#: A cold run longer than this drops pages this far behind itself. It ends after as many bytes that were in memory.
_BYTES = 8 << 20


class CatchUp:
    """The cold run of one stream."""

    __slots__ = ("_behind", "_behind_bytes", "_cold_bytes", "_warm_bytes", "_workers")

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._cold_bytes = 0
        self._warm_bytes = 0
        self._behind: deque[tuple[FileRange, int, int]] = deque()
        self._behind_bytes = 0

    def missed(self, count: int) -> None:
        """The next bytes were not in memory."""
        self._cold_bytes += count
        self._warm_bytes = 0

    def found(self, source: FileRange, position: int, count: int) -> bool:
        """The next bytes are in memory, after others that were not. They may be there only because they were read
        ahead, by us or by the kernel: the run is over (True) when more of them follow than anybody reads ahead."""
        self._warm_bytes += count
        if self._warm_bytes > _BYTES:
            self.end()
            return True
        if count > 0:
            self._cold_bytes += count
            self.leave(source, position, count)
        return False

    def leave(self, source: FileRange, position: int, count: int) -> None:
        """These bytes are on their way out; those well before them are dropped."""
        if self._cold_bytes <= _BYTES:
            return
        behind = self._behind
        source.acquire()
        behind.append((source, position, count))
        self._behind_bytes += count
        while self._behind_bytes > _BYTES:
            source, position, count = behind.popleft()
            self._behind_bytes -= count
            job = self._workers.offload(pagecache.drop, source.file.open(), position, count)
            job.add_done_callback(partial(_release, source))

    def end(self) -> None:
        """What would have been dropped stays: others use it."""
        for source, _, _ in self._behind:
            source.release()
        self._behind.clear()
        self._behind_bytes = 0


def _release(source: FileRange, _: asyncio.Future[None]) -> None:
    source.release()
