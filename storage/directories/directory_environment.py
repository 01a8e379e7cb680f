"""What the logs of one directory use: the event loop's timers, the workers, and the manager's ear for failures."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from pylogd.storage.directories.directory import LogDirectory
from pylogd.storage.environment import LogEnvironment
from pylogd.storage.log.log_state import LogState

if TYPE_CHECKING:
    from pylogd.storage.directories.log_manager import LogManager

logger = logging.getLogger(__name__)


class DirectoryEnvironment(LogEnvironment):
    """Nothing blocks here: what would is put on a timer or a worker."""

    def __init__(self, manager: LogManager, directory: LogDirectory) -> None:
        super().__init__(manager.files, manager.clock, manager.chance)
        self._manager = manager
        self._directory = directory

    def later(self, delay_ms: int, job: Callable[[], None]) -> None:
        self._manager.later(delay_ms, self._directory, job)

    def request_flush(self, log: LogState, up_to: int | None = None) -> None:
        self._manager.flusher.request(log, up_to)

    def start_writeback(self, log: LogState, position: int, size: int) -> None:
        self._manager.flusher.start_writeback(log, position, size)

    def recovery_point_lowered(self, log: LogState) -> None:
        self._manager.checkpoints.write_recovery_points(self._directory)

    def truncated(self, log: LogState, offset: int) -> None:
        if self._manager.on_truncated is not None:
            self._manager.on_truncated(log, offset)

    def failed(self, log: LogState, action: str, error: OSError) -> None:
        self._manager.directory_failed(self._directory, f"{log.name}: {action}: {error}")

    def disk_full(self, log: LogState, error: OSError) -> None:
        if not self._directory.disk_full:
            self._directory.disk_full = True
            logger.error(
                "log directory %s is full: appends to its partitions fail with KAFKA_STORAGE_ERROR until it has room, "
                "reads go on (%s)",
                self._directory.path,
                error,
            )

    def disk_has_room(self, log: LogState) -> None:
        if self._directory.disk_full:
            self._directory.disk_full = False
            logger.info("log directory %s has room again: appends succeed", self._directory.path)
