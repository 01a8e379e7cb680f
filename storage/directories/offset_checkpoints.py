"""The offset checkpoints of all log directories: recovery points, log starts and high watermarks.

Tables are computed on the event loop, where the logs live, and written in workers. Two writers of one table must not
overtake each other: a recovery point that was lowered for a truncation may not be raised again by a table computed
before. So each table has a lock and a version, and an older table than the one on disk is dropped.

A deleted partition's lines must be gone before a new partition of that name begins: an old log start beyond its end
would make the next start throw the new log away. They are rewritten at once in the background, and a new partition
that comes sooner waits for the write.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from pylogd.storage import checkpoint_file
from pylogd.storage.directories.directory import LogDirectory, TopicPartition

if TYPE_CHECKING:
    import asyncio

    from pylogd.storage.directories.directory_jobs import DirectoryJobs
    from pylogd.storage.log.log import Log

Offsets = dict[TopicPartition, int]
NAMES = (checkpoint_file.RECOVERY_POINT, checkpoint_file.LOG_START_OFFSET, checkpoint_file.HIGH_WATERMARK)


class _Table:
    """One checkpoint file."""

    __slots__ = ("computed", "lock", "on_disk", "stale", "version")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        #: Number of the last table computed, and of the one on disk.
        self.computed = 0
        self.version = 0
        self.on_disk: Offsets | None = None
        #: Partitions that are gone and may still have a line.
        self.stale: set[TopicPartition] = set()


class Checkpoints:
    """`loaded` gives the log of a partition if it is in memory."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        directories: list[LogDirectory],
        jobs: DirectoryJobs,
        loaded: Callable[[TopicPartition], Log | None],
    ) -> None:
        self._loop = loop
        self._directories = directories
        self._jobs = jobs
        self._loaded = loaded
        self._tables: dict[tuple[str, str], _Table] = {}
        self._rewriting: set[str] = set()

    def _table(self, directory: LogDirectory, name: str) -> _Table:
        return self._tables.setdefault((directory.path, name), _Table())

    # -- on schedule

    async def write_changed(self, name: str) -> None:
        """One round over all directories; unchanged files are left alone."""
        for directory in self._directories:
            if not directory.online:
                continue
            offsets = self._offsets(directory, name)
            table = self._table(directory, name)
            if table.on_disk != offsets or table.stale:
                job = self._job(directory, name, offsets)
                await self._jobs.offload(directory, f"writing {name}", job)

    def _job(self, directory: LogDirectory, name: str, offsets: Offsets) -> Callable[[], None]:
        table = self._table(directory, name)
        table.computed += 1
        return partial(self._write, directory, name, offsets, table.computed, frozenset(table.stale))

    def _write(
        self, directory: LogDirectory, name: str, offsets: Offsets, version: int, gone: frozenset[TopicPartition]
    ) -> None:
        """Worker, or the loop when it must wait."""
        table = self._table(directory, name)
        with table.lock:
            if version > table.version:
                directory.write_checkpoint(name, offsets)
                table.version = version
                table.on_disk = offsets
            table.stale -= gone

    # -- at once

    def write_recovery_points(self, directory: LogDirectory) -> None:
        """The caller is about to truncate a log below its recovery point."""
        name = checkpoint_file.RECOVERY_POINT
        self._job(directory, name, self._offsets(directory, name))()

    def write_all(self, directory: LogDirectory) -> None:
        """Worker, at shutdown: nobody else writes any more."""
        for name in NAMES:
            self._job(directory, name, self._offsets(directory, name))()

    def partition_gone(self, directory: LogDirectory, key: TopicPartition) -> None:
        for name in NAMES:
            self._table(directory, name).stale.add(key)
        if directory.path not in self._rewriting:
            self._rewriting.add(directory.path)
            self._loop.call_soon(self._rewrite, directory)

    def _rewrite(self, directory: LogDirectory) -> None:
        """One write for all partitions that went in this turn of the loop."""
        self._rewriting.discard(directory.path)
        if directory.online and not self._jobs.closed:
            for name in NAMES:
                job = self._job(directory, name, self._offsets(directory, name))
                self._jobs.offload(directory, f"writing {name}", job)

    def before_creation(self, directory: LogDirectory, key: TopicPartition) -> None:
        """Waits for the lines of an earlier partition of this name to be gone."""
        for name in NAMES:
            if key in self._table(directory, name).stale:
                self._job(directory, name, self._offsets(directory, name))()

    # -- tables

    def _offsets(self, directory: LogDirectory, name: str) -> Offsets:
        if name == checkpoint_file.RECOVERY_POINT:
            return self._collect(directory, directory.recovery_points, lambda log: log.recovery_point)
        if name == checkpoint_file.HIGH_WATERMARK:
            return self._collect(directory, directory.high_watermarks, lambda log: log.high_watermark)
        # Only those that differ from the base of their first segment, which is what a missing line means.
        return self._collect(
            directory,
            directory.log_start_offsets,
            lambda log: log.log_start_offset if log.log_start_offset > log.segments.first.base_offset else None,
        )

    def _collect(self, directory: LogDirectory, before: Offsets, offset: Callable[[Log], int | None]) -> Offsets:
        """Loaded logs by what they say now, the others by what the checkpoint said when the broker started."""
        offsets: Offsets = {}
        for key in directory.partitions:
            log = self._loaded(key)
            value = before.get(key) if log is None else offset(log)
            if value is not None:
                offsets[key] = value
        return offsets
