"""The files with a log's producers: which there are, and which go. `producer_snapshot` has their bytes.

A snapshot is taken when a segment begins and when the log is closed, and lives as long as the segment of its offset.
"""

from __future__ import annotations

from pylogd.runtime.files import FileSystem
from pylogd.storage.producers import producer_snapshot


class SnapshotFiles:
    """`offsets` are those of the snapshots, in order."""

    __slots__ = ("_directory", "_files", "offsets")

    def __init__(self, files: FileSystem, directory: str, offsets: list[int] | None) -> None:
        """`offsets` are those already there, if the caller has listed the directory."""
        self._files = files
        self._directory = directory
        self.offsets = sorted(producer_snapshot.offsets_in(files, directory) if offsets is None else offsets)

    @property
    def latest(self) -> int | None:
        return self.offsets[-1] if self.offsets else None

    def path(self, offset: int) -> str:
        return producer_snapshot.path(self._directory, offset)

    def write(self, offset: int, rows: list[producer_snapshot.Row], durable: bool) -> str:
        path = self.path(offset)
        self._files.write_atomically(path, producer_snapshot.encode(rows), durable)
        if offset not in self.offsets:
            self.offsets.append(offset)
            self.offsets.sort()
        return path

    def read_latest(self) -> tuple[int, list[producer_snapshot.Row]] | None:
        """Offset and rows of the newest one that can be read; those that cannot are deleted on the way."""
        while self.offsets:
            offset = self.offsets[-1]
            try:
                return offset, producer_snapshot.decode(self._files.read_bytes(self.path(offset)))
            except (producer_snapshot.CorruptSnapshot, FileNotFoundError):
                self.delete(offset)
        return None

    def delete(self, offset: int) -> None:
        self.offsets.remove(offset)
        self._files.unlink(self.path(offset))

    def delete_all(self) -> None:
        for known in list(self.offsets):
            self.delete(known)

    def delete_before(self, offset: int) -> None:
        for known in [o for o in self.offsets if o < offset]:
            self.delete(known)

    def delete_outside(self, log_start_offset: int, log_end_offset: int) -> None:
        """Deletes those that say nothing about a log of this range."""
        for known in [o for o in self.offsets if o > log_end_offset or o <= log_start_offset]:
            self.delete(known)

    def delete_strays(self, segment_base_offsets: list[int]) -> None:
        """Deletes snapshots without a segment, but not the newest one if it lies behind all segments: a clean stop
        wrote it."""
        bases = set(segment_base_offsets)
        strays = [offset for offset in self.offsets if offset not in bases]
        newest_base = max(bases, default=-1)
        for offset in strays:
            if offset == strays[-1] and (offset >= newest_base or not bases):
                continue
            self.delete(offset)

    def mark_deleted(self, offset: int, suffix: str = ".deleted") -> str | None:
        """Renames the snapshot of a segment that goes away; the new path, for the one who deletes the segment's files
        later."""
        if offset not in self.offsets:
            return None
        self.offsets.remove(offset)
        path = self.path(offset)
        if not self._files.exists(path):
            return None
        self._files.rename(path, path + suffix)
        return path + suffix

    def moved(self, directory: str) -> None:
        """The log's directory was renamed."""
        self._directory = directory
