"""A partition's log: segments in order, and the offsets everybody asks for.

Where things are: `state` holds what a log is made of, `appending`, `placing` and `reading` are the hot paths. `loading`
opens and recovers a log, `rolling` starts segments, `truncation` cuts the end, `retention` the beginning, `lookup`
finds offsets by time, `swap` replaces segments after compaction, `flushing` makes bytes durable.
"""

from __future__ import annotations

from pylogd.runtime.files import DISK_FULL_ERRORS
from pylogd.storage.checkpoint_file import LEADER_EPOCHS
from pylogd.storage.log import retention, swap, truncation
from pylogd.storage.log.appending import AppendInfo
from pylogd.storage.log.flush_plan import FlushPlan
from pylogd.storage.log.placing import Placing
from pylogd.storage.log.reading import LogRead, Reading
from pylogd.storage.segments.segment import Segment

__all__ = ["DISK_FULL_ERRORS", "AppendInfo", "FlushPlan", "Log", "LogRead"]


class Log(Placing, Reading):
    """Use `loading.open_log` to get one."""

    __slots__ = ()

    @property
    def size(self) -> int:
        return self.segments.size

    @property
    def empty(self) -> bool:
        return self.log_start_offset == self.log_end_offset

    # -- the ends

    def truncate_to(self, offset: int) -> bool:
        """Removes everything at and above `offset`; False when there was nothing."""
        return truncation.truncate_to(self, offset)

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Empties the log; the next record gets `offset`."""
        truncation.truncate_fully_and_start_at(self, offset, log_start_offset)

    def delete_records_before(self, offset: int) -> int:
        """Moves the log start; the segments below go at the next retention check. Returns the log start offset."""
        retention.advance_log_start(self, offset)
        return self.log_start_offset

    def delete_old_segments(self, now_ms: int | None = None) -> int:
        """One retention check; returns how many segments went."""
        return retention.delete_old_segments(self, self.environment.clock.now_ms() if now_ms is None else now_ms)

    def replace_segments(self, new: list[Segment], old: list[Segment]) -> None:
        """Swaps compacted segments in."""
        swap.replace_segments(self, new, old)

    # -- life

    @property
    def dirty(self) -> bool:
        """True when closing writes anything."""
        return (
            self.log_end_offset > self.recovery_point
            or self.active.offset_index.in_memory
            or self.epochs.dirty
            or not self.metadata_written
        )

    def close(self, durable: bool = True) -> None:
        """Clean end, may run in a worker: indexes, epochs and producer state reach the disk. The caller has flushed
        before, or does not mind recovery; without `durable` it syncs the file system afterwards."""
        if self.closed:
            return
        self.closed = True
        if self.offline:
            self.close_handles()
            return
        self.write_metadata(durable)
        self.producers.map_end_offset = self.log_end_offset
        self.producers.take_snapshot(durable)
        self.epochs.flush(durable)
        for segment in self.segments:
            segment.close()
        if durable and self.active.indexes_unsynced:
            # The active segment's indexes are on disk only now, and the next start will trust them.
            self.active.sync_indexes()
            self.environment.files.sync_dir(self.directory)

    def close_handles(self) -> None:
        """Gives descriptors back without writing: the directory failed, or the files are about to be deleted."""
        self.closed = True
        for segment in self.segments:
            segment.drop()

    def moved(self, directory: str) -> None:
        """The partition's directory was renamed."""
        self.directory = directory
        for segment in self.segments:
            segment.moved(directory)
        self.producers.snapshots.moved(directory)
        self.epochs.moved(f"{directory}/{LEADER_EPOCHS}")

    def __repr__(self) -> str:
        return (
            f"Log({self.name}, [{self.log_start_offset}, {self.log_end_offset}), high_watermark={self.high_watermark})"
        )
