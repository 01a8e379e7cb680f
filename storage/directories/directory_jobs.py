"""Work on a log directory that blocks and therefore runs in a worker. Its I/O error is the directory's failure."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from pylogd.runtime.files import DISK_FULL_ERRORS
from pylogd.runtime.workers import Workers
from pylogd.storage.directories.directory import LogDirectory

logger = logging.getLogger(__name__)


class DirectoryJobs:
    """`directory_failed` is told of a directory whose disk fails, and why."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        workers: Workers,
        directory_failed: Callable[[LogDirectory, str], None],
    ) -> None:
        self._loop = loop
        self._workers = workers
        self._directory_failed = directory_failed
        self._running: set[asyncio.Future[None]] = set()
        #: No later job starts any more.
        self.closed = False

    def offload(self, directory: LogDirectory, action: str, job: Callable[[], None]) -> asyncio.Future[None]:
        """Runs `job` in a worker and waits for it at shutdown; its I/O error takes the directory offline."""
        task = self._workers.offload(job)
        self._running.add(task)

        def done(finished: asyncio.Future[None]) -> None:
            self._running.discard(finished)
            error = None if finished.cancelled() else finished.exception()
            if isinstance(error, OSError):
                if error.errno not in DISK_FULL_ERRORS:
                    self._directory_failed(directory, f"{action}: {error}")
            elif error is not None:
                logger.error("%s in %s", action, directory.path, exc_info=error)

        task.add_done_callback(done)
        return task

    def later(self, delay_ms: int, directory: LogDirectory, job: Callable[[], None]) -> None:
        """Runs `job`, a deletion, in a worker after the delay."""

        def begin() -> None:
            if not self.closed and directory.online:
                self.offload(directory, "deleting", job)

        self._loop.call_later(delay_ms / 1000, begin)

    async def drain(self) -> None:
        """Waits for what is running."""
        if self._running:
            await asyncio.gather(*self._running, return_exceptions=True)
