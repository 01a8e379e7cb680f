"""The part of a flush that blocks, cut loose from the log so that a worker thread can run it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pylogd.runtime.files import DISK_FULL_ERRORS
from pylogd.storage.segments.segment import Segment

if TYPE_CHECKING:
    from pylogd.storage.log.log_state import LogState


#: How long after it met a full disk a flush is tried again.
FLUSH_RETRY_S = 1.0


class FlushDeferred(Exception):
    """The disk is full; the flush is to be asked for again."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.cause = cause


class FlushPlan:
    """Made on the loop, run in a worker, reported back to `mark_flushed` on the loop."""

    __slots__ = (
        "_active",
        "_epochs",
        "_files",
        "_log",
        "directory",
        "end",
        "segments",
        "snapshots",
        "start",
        "truncations",
    )

    def __init__(self, log: LogState, segments: list[Segment], start: int, end: int) -> None:
        self._files = log.environment.files
        self._epochs = log.epochs
        self._active = log.active
        self.snapshots = log.take_unsynced_snapshots()
        self.directory = log.directory
        self.segments = segments
        self.start = start
        self.end = end
        self.truncations = log.truncations
        self._log = log

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
            self._files.sync_dir(self.directory)
        if not self._log.entry_synced:
            self._files.sync_dir(self.directory.rpartition("/")[0])
            self._log.entry_synced = True
