"""What a log asks of its surroundings: somebody who does later what must not be done now, and who is told when the disk
fails."""

from __future__ import annotations

import random
from collections.abc import Callable

from pylogd.runtime.clock import Clock
from pylogd.runtime.files import File, FileSystem
from pylogd.storage.environment import StorageEnvironment
from pylogd.storage.log.flush_plan import FlushableLog


class LogEnvironment(StorageEnvironment):
    """The default does at once, in the caller, what the manager puts on timers and worker threads, except deletions:
    those wait in `pending` until `run_pending()`, so that a single log can be used without an event loop."""

    def __init__(self, files: FileSystem, clock: Clock, chance: random.Random | None = None) -> None:
        super().__init__(files, clock, chance)
        self.pending: list[Callable[[], None]] = []

    def later(self, delay_ms: int, job: Callable[[], None]) -> None:
        """Runs `job`, which may block, after the delay and off the event loop."""
        self.pending.append(job)

    def request_flush(self, log: FlushableLog, up_to: int | None = None) -> None:
        """Brings the log's flushed offset up to `up_to`, or to what is its log end now."""
        log.flush(up_to)

    def recovery_point_lowered(self, log: FlushableLog) -> None:
        """The log is about to be cut below its recovery point. A checkpoint that still names the old one would let a
        crash skip segments that were written after the cut and never flushed."""

    def truncated(self, log: FlushableLog, offset: int) -> None:
        """The log was cut at `offset`; what comes there from now on is new."""

    def start_writeback(self, file: File, position: int, size: int) -> None:
        """Starts write-out of this part of an active segment."""
        file.start_writeback(position, size)

    def failed(self, log: FlushableLog, action: str, error: OSError) -> None:
        """An I/O error that is not a full disk: nothing in that directory can be trusted any more."""
        log.offline = True

    def disk_full(self, log: FlushableLog, error: OSError) -> None:
        """A write was refused for lack of space and undone."""

    def disk_has_room(self, log: FlushableLog) -> None:
        """A write succeeded in a log that was refused before."""

    def run_pending(self) -> None:
        jobs, self.pending = self.pending, []
        for job in jobs:
            job()
