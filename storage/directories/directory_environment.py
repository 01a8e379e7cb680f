"""What the logs of one directory are given: timers, worker threads, checkpoints, and whom they tell of a failing
disk."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from pylogd.runtime.clock import Clock
from pylogd.runtime.files import File, FileSystem
from pylogd.storage.directories.directory import LogDirectory
from pylogd.storage.log.flush_plan import FlushableLog
from pylogd.storage.log.log_environment import LogEnvironment

if TYPE_CHECKING:
    from pylogd.storage.directories.directory_jobs import DirectoryJobs
    from pylogd.storage.directories.offset_checkpoints import Checkpoints
    from pylogd.storage.log.flushing import Flusher

logger = logging.getLogger(__name__)

#: Told of a log that was cut, and where.
TruncationListener = Callable[[FlushableLog, int], None]


class DirectoryEnvironment(LogEnvironment):
    """Nothing blocks here: what would is put on a timer or a worker."""

    def __init__(
        self,
        directory: LogDirectory,
        files: FileSystem,
        clock: Clock,
        chance: random.Random,
        *,
        jobs: DirectoryJobs,
        flusher: Flusher,
        checkpoints: Checkpoints,
        truncation_listeners: list[TruncationListener],
        directory_failed: Callable[[LogDirectory, str], None],
    ) -> None:
        super().__init__(files, clock, chance)
        self._directory = directory
        self._jobs = jobs
        self._flusher = flusher
        self._checkpoints = checkpoints
        self._truncation_listeners = truncation_listeners
        self._directory_failed = directory_failed

    def later(self, delay_ms: int, job: Callable[[], None]) -> None:
        self._jobs.later(delay_ms, self._directory, job)

    def request_flush(self, log: FlushableLog, up_to: int | None = None) -> None:
        self._flusher.request(log, up_to)

    def start_writeback(self, file: File, position: int, size: int) -> None:
        self._flusher.start_writeback(file, position, size)

    def recovery_point_lowered(self, log: FlushableLog) -> None:
        self._checkpoints.write_recovery_points(self._directory)

    def truncated(self, log: FlushableLog, offset: int) -> None:
        for listener in self._truncation_listeners:
            listener(log, offset)

    def failed(self, log: FlushableLog, action: str, error: OSError) -> None:
        self._directory_failed(self._directory, f"{log.name}: {action}: {error}")

    def disk_full(self, log: FlushableLog, error: OSError) -> None:
        if not self._directory.disk_full:
            self._directory.disk_full = True
            logger.error(
                "log directory %s is full: appends to its partitions fail with KAFKA_STORAGE_ERROR until it has room, "
                "reads go on (%s)",
                self._directory.path,
                error,
            )

    def disk_has_room(self, log: FlushableLog) -> None:
        if self._directory.disk_full:
            self._directory.disk_full = False
            logger.info("log directory %s has room again: appends succeed", self._directory.path)
