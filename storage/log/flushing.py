"""Group commit: fsync runs in worker threads, at most one per log, and everybody who appended before it began shares
it.

A request while one is running is remembered and starts the next when the running one ends, so with N producers waiting
for durability there is one fsync per disk round trip, not N. Early write-back takes the same road: the kernel is asked
to start writing dirty pages out, so that neither fsync nor a later write has to wait for all of them at once.

An error of fsync is final. The kernel may have dropped the dirty pages and report success next time, so nothing is
tried again: the directory goes offline.
"""

from __future__ import annotations

import asyncio

from pylogd.runtime.files import File
from pylogd.runtime.workers import Workers
from pylogd.storage.log.flush_plan import FLUSH_RETRY_S, FlushableLog, FlushDeferred, FlushPlan


class Flusher:
    """Per manager; runs on the event loop."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        #: Logs with a flush under way -> whether (and how far) another one was asked for meanwhile.
        self._running: dict[FlushableLog, tuple[bool, int | None]] = {}
        self._idle: asyncio.Future[None] | None = None

    def request(self, log: FlushableLog, up_to: int | None = None) -> None:
        """Makes what is in the log now (below `up_to`) durable; the log's `flush_listeners` hear of it."""
        if log not in self._running:
            self._start(log, up_to)
            return
        asked, bound = self._running[log]
        if asked:
            up_to = None if bound is None or up_to is None else max(bound, up_to)
        self._running[log] = (True, up_to)

    def _start(self, log: FlushableLog, up_to: int | None) -> None:
        if log.offline or log.closed:
            return
        plan = log.flush_plan(up_to)
        if not plan.segments:
            return
        self._running[log] = (False, None)
        self._workers.offload(plan.run).add_done_callback(lambda done: self._done(log, plan, done))

    def _done(self, log: FlushableLog, plan: FlushPlan, done: asyncio.Future[None]) -> None:
        asked, up_to = self._running.pop(log)
        error = None if done.cancelled() else done.exception()
        if isinstance(error, FlushDeferred):
            if not log.closed:
                log.defer_flush(plan, error)
                # Nobody may write to this log before it is flushed: a follower does not fetch, producers wait.
                asyncio.get_running_loop().call_later(FLUSH_RETRY_S, self.request, log)
        elif isinstance(error, OSError):
            if not log.closed:
                log.flush_failed(error)
        elif error is not None:
            raise error
        elif not done.cancelled() and not log.closed:
            log.mark_flushed(plan)
            if asked or plan.truncations != log.truncations:
                self._start(log, up_to)
        if self._idle is not None and not self._running:
            self._idle.set_result(None)
            self._idle = None

    async def drain(self) -> None:
        """Waits until no flush is running."""
        if self._running:
            if self._idle is None:
                self._idle = asyncio.get_running_loop().create_future()
            await self._idle

    def start_writeback(self, file: File, position: int, size: int) -> None:
        self._workers.offload(_start_writeback, file, position, size)


def _start_writeback(file: File, position: int, size: int) -> None:
    """Worker. Only a hint: a file that vanished meanwhile, or a disk that fails, shows itself to the next fsync."""
    try:
        file.start_writeback(position, size)
    except OSError:
        return
