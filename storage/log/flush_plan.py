"""The part of a flush that blocks, cut loose from the log so that a worker thread can run it."""

from __future__ import annotations

from typing import Protocol

from pylogd.runtime.files import DISK_FULL_ERRORS, FileSystem
from pylogd.storage.log.leader_epochs import EpochCache
from pylogd.storage.segments.segment import Segment

#: How long after it met a full disk a flush is tried again.
FLUSH_RETRY_S = 1.0


class FlushDeferred(Exception):
    """The disk is full; the flush is to be asked for again."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.cause = cause


class FlushableLog(Protocol):
    """A log as those see it who make it durable: its environment and the flusher."""

    name: str
    directory: str
    topic: str
    partition: int
    offline: bool
    closed: bool
    #: A flush that began before a truncation says nothing about the log after it.
    truncations: int
    #: False while the partition's own directory entry may be lost by a crash.
    entry_synced: bool

    def flush(self, up_to: int | None = None) -> None: ...

    def flush_plan(self, up_to: int | None = None) -> FlushPlan: ...

    def mark_flushed(self, plan: FlushPlan) -> None: ...

    def defer_flush(self, plan: FlushPlan, deferred: FlushDeferred) -> None: ...

    def flush_failed(self, error: OSError) -> None: ...

    def write_metadata(self, durable: bool = True) -> None: ...


class FlushPlan:
    """Made on the loop, run in a worker, reported back to `mark_flushed` on the loop."""

    __slots__ = (
        "_active",
        "_directory",
        "_epochs",
        "_files",
        "_log",
        "end",
        "segments",
        "snapshots",
        "start",
        "truncations",
    )

    def __init__(
        self,
        log: FlushableLog,
        files: FileSystem,
        *,
        segments: list[Segment],
        active: Segment,
        snapshots: list[str],
        epochs: EpochCache,
        start: int,
        end: int,
    ) -> None:
        self._log = log
        self._files = files
        self._active = active
        self._epochs = epochs
        self.segments = segments
        self.snapshots = snapshots
        self.start = start
        self.end = end
        self.truncations = log.truncations
        self._directory = log.directory

    def run(self) -> None:
        """Worker. A segment that lies wholly below the new recovery point is never scanned again, so its indexes, the
        snapshot of the producers at its end and the epochs that start in it must be durable too; the active segment is
        always scanned after a crash. New files need their directory entry. FlushDeferred when the disk has no room for
        the small files; an error of the syncs themselves is final."""
        try:
            self._log.write_metadata()
            if self._epochs.dirty:
                self._epochs.flush()
        except OSError as error:
            if error.errno in DISK_FULL_ERRORS:
                raise FlushDeferred(error) from error
            raise
        for path in self.snapshots:
            if self._files.exists(path):
                snapshot = self._files.file(path, readonly=True)
                snapshot.fsync()
                snapshot.close()
        for segment in self.segments:
            segment.sync(indexes=segment is not self._active)
        if self.snapshots or any(segment.base_offset >= self.start for segment in self.segments):
            self._files.sync_dir(self._directory)
        if not self._log.entry_synced:
            self._files.sync_dir(self._directory.rpartition("/")[0])
            self._log.entry_synced = True
