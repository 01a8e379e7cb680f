"""The metadata log on disk in the shape the Raft core wants (`raft/log_view.py`).

A snapshot that is being fetched lies beside the others as `.checkpoint.part`. It is fsynced and renamed before the log
is emptied for it: a crash in between leaves a snapshot that reaches behind the end of the log, and the log is emptied
at the next start.
"""

from __future__ import annotations

from pylogd.controller.quorum.metadata_log import MetadataLog
from pylogd.controller.raft.log_view import LogFull, OffsetAndEpoch
from pylogd.metadata.snapshot import PARTIAL_SUFFIX, SUFFIX, SnapshotId
from pylogd.runtime.clock import Clock
from pylogd.runtime.files import File
from pylogd.storage.log.log_state import DiskFull


def _id(snapshot_id: SnapshotId | None) -> OffsetAndEpoch | None:
    return None if snapshot_id is None else OffsetAndEpoch(snapshot_id.offset, snapshot_id.epoch)


class DiskLog:
    """Implements `RaftLog`."""

    def __init__(self, log: MetadataLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._partial: File | None = None

    @property
    def start_offset(self) -> int:
        return self._log.log.log_start_offset

    @property
    def end_offset(self) -> int:
        return self._log.log.log_end_offset

    @property
    def last_epoch(self) -> int:
        return self._log.last_epoch

    @property
    def earliest_snapshot(self) -> OffsetAndEpoch | None:
        return _id(self._log.snapshots[0]) if self._log.snapshots else None

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        return _id(self._log.latest_snapshot)

    def append(self, batch: bytearray, epoch: int) -> None:
        try:
            self._log.append(batch, epoch, self._clock.now_ms())
        except DiskFull as refusal:
            raise LogFull(refusal.code, refusal.message) from None

    def append_fetched(self, records: bytes | memoryview) -> None:
        # The core has checked the batches; their epochs are those of their leaders, none above ours.
        try:
            self._log.log.append_as_follower(memoryview(records), 0x7FFFFFFF, self._clock.now_ms())
        except DiskFull as refusal:
            raise LogFull(refusal.code, refusal.message) from None

    def read(self, offset: int, max_bytes: int) -> bytes:
        return self._log.read_from(offset, max_bytes, self.end_offset)

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        found, end = self._log.log.epochs.end_offset_for(epoch, self.end_offset)
        if found < 0:
            return OffsetAndEpoch(self.end_offset, self.last_epoch)
        earliest = self.earliest_snapshot
        if earliest is not None and end == earliest.offset and found == epoch:
            return earliest
        return OffsetAndEpoch(end, found)

    def truncate_to(self, offset: int) -> None:
        """Durable at once: what is appended next must never stand before the rest of what was cut off."""
        self._log.log.truncate_to(offset)
        self._log.log.active.file.fsync()

    # -- snapshots

    def _path(self, snapshot_id: OffsetAndEpoch) -> str:
        return self._log.snapshot_path(SnapshotId(*snapshot_id))

    def snapshot_size(self, snapshot_id: OffsetAndEpoch) -> int | None:
        if SnapshotId(*snapshot_id) not in self._log.snapshots:
            return None
        file = self._log.files.open(self._path(snapshot_id), readonly=True)
        try:
            return file.size()
        finally:
            file.close()

    def read_snapshot(self, snapshot_id: OffsetAndEpoch, position: int, max_bytes: int) -> bytes:
        file = self._log.files.open(self._path(snapshot_id), readonly=True)
        try:
            return file.pread(min(max_bytes, file.size() - position), position)
        finally:
            file.close()

    def _partial_path(self, snapshot_id: OffsetAndEpoch) -> str:
        return f"{self._path(snapshot_id)[: -len(SUFFIX)]}-0{PARTIAL_SUFFIX}"

    def write_snapshot(self, snapshot_id: OffsetAndEpoch, position: int, data: bytes | memoryview) -> None:
        path = self._partial_path(snapshot_id)
        if position == 0:
            self.abandon_snapshot()
            if self._log.files.exists(path):
                self._log.files.unlink(path)
            self._partial = self._log.files.open(path, create=True)
        if self._partial is None:
            raise ValueError(f"no snapshot is being fetched into {path}")
        self._partial.pwrite(data, position)

    def install_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        if self._partial is None:
            raise ValueError(f"snapshot {snapshot_id} was not fetched")
        self._partial.fsync()
        self.abandon_snapshot()
        self._log.files.rename(self._partial_path(snapshot_id), self._path(snapshot_id))
        self._log.files.sync_dir(self._log.directory)
        self._log.install(SnapshotId(*snapshot_id))

    def abandon_snapshot(self) -> None:
        """Closes the file of a snapshot that is not fetched any further; the next start removes it."""
        if self._partial is not None:
            self._partial.close()
            self._partial = None
