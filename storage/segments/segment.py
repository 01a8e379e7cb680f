"""A segment: one `.log` file with its indexes. All are named after the offset of the first record the segment may
hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pylogd.protocol.batch import HEADER_SIZE, BatchHeader, batch_records
from pylogd.runtime.files import File, FileRange
from pylogd.storage.log_config import INT64_MAX, LogConfig
from pylogd.storage.segments.index import NO_TIMESTAMP, OffsetIndex, TimeIndex
from pylogd.storage.segments.scan import CHUNK_BYTES, scan_headers
from pylogd.storage.segments.txnindex import TransactionIndex

if TYPE_CHECKING:
    from pylogd.storage.environment import StorageEnvironment

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"

#: Offsets in the indexes are relative and 31 bits wide.
RELATIVE_OFFSET_MAX = 2**31 - 1
_UNKNOWN = -2


class Segment:
    """`size` is the length of the valid part of the file, which is all of it except while a write is being undone."""

    __slots__ = (
        "_environment",
        "_first_timestamp",
        "base_offset",
        "bytes_since_index",
        "created_ms",
        "directory",
        "file",
        "jitter_ms",
        "max_timestamp_known",
        "max_timestamp_offset_known",
        "modified_ms",
        "offset_index",
        "preallocated",
        "size",
        "suffix",
        "time_index",
        "txn_index",
        "writeback_position",
    )

    def __init__(
        self,
        environment: StorageEnvironment,
        directory: str,
        base_offset: int,
        config: LogConfig,
        *,
        new: bool = True,
        size: int = 0,
        modified_ms: int = 0,
        index_sizes: tuple[int, int] | None = None,
        suffix: str = "",
    ) -> None:
        files = environment.files
        self._environment = environment
        self.directory = directory
        self.base_offset = base_offset
        self.suffix = suffix
        stem = f"{directory}/{base_offset:020d}"
        self.file: File = files.file(stem + LOG_SUFFIX + suffix)
        index_bytes = config.segment_index_bytes
        self.offset_index = OffsetIndex(files, stem + INDEX_SUFFIX + suffix, base_offset, index_bytes, new)
        self.time_index = TimeIndex(files, stem + TIME_INDEX_SUFFIX + suffix, base_offset, index_bytes, new)
        self.txn_index = TransactionIndex(files, stem + TXN_INDEX_SUFFIX + suffix, base_offset, new)
        if index_sizes is not None:
            self.offset_index.measured(index_sizes[0])
            self.time_index.measured(index_sizes[1])
        self.size = size
        self.modified_ms = modified_ms
        self.bytes_since_index = 0
        self.preallocated = False
        self.writeback_position = size
        self.created_ms = environment.clock.now_ms()
        self.jitter_ms = (
            environment.chance.randrange(min(config.segment_jitter_ms, config.segment_ms))
            if config.segment_jitter_ms > 0 and config.segment_ms > 0
            else 0
        )
        self._first_timestamp: int | None = None
        self.max_timestamp_known = NO_TIMESTAMP if new else _UNKNOWN
        self.max_timestamp_offset_known = base_offset

    # -- timestamps

    def load_max_timestamp(self) -> None:
        if self.max_timestamp_known == _UNKNOWN:
            self.max_timestamp_known, self.max_timestamp_offset_known = self.time_index.last

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of any batch, or -1."""
        if self.max_timestamp_known == _UNKNOWN:
            self.load_max_timestamp()
        return self.max_timestamp_known

    @property
    def max_timestamp_offset(self) -> int:
        """The last offset of the first batch that has the largest timestamp."""
        if self.max_timestamp_known == _UNKNOWN:
            self.load_max_timestamp()
        return self.max_timestamp_offset_known

    @property
    def largest_timestamp(self) -> int:
        """For retention: of the records, or of the file when they have none."""
        timestamp = self.max_timestamp
        return timestamp if timestamp >= 0 else self.modified_ms or self.created_ms

    @property
    def first_timestamp(self) -> int:
        """The first batch's largest timestamp, from which time-based rolling counts; -1 when it has none or there is
        none."""
        if self._first_timestamp is None:
            if self.size == 0:
                return NO_TIMESTAMP
            for _, header in scan_headers(self.file.pread, 0, self.size):
                self._first_timestamp = header.max_timestamp
                return header.max_timestamp
            return NO_TIMESTAMP
        return self._first_timestamp

    def starts_with(self, max_timestamp: int) -> None:
        """The first batch of the segment is about to be written."""
        self._first_timestamp = max_timestamp

    def roll_deadline(self, roll_ms: int) -> tuple[int, int]:
        """(record timestamp, wall time) beyond which an append must roll a segment that is not empty; one is
        infinite."""
        wait_ms = roll_ms - self.jitter_ms
        first = self._first_timestamp if self._first_timestamp is not None else self.first_timestamp
        if first >= 0:
            return first + wait_ms, INT64_MAX
        return INT64_MAX, self.created_ms + wait_ms

    # -- appending: `Log` writes the bytes, this keeps the books

    def note_batch(self, position: int, length: int, last_offset: int, max_timestamp: int, interval_bytes: int) -> bool:
        """Accounts for one batch just written at `position`; the caller moves `size`. Whether that took room in the
        indexes."""
        if self.max_timestamp_known == _UNKNOWN:
            self.load_max_timestamp()
        if max_timestamp > self.max_timestamp_known:
            self.max_timestamp_known = max_timestamp
            self.max_timestamp_offset_known = last_offset
        if position == 0:
            self._first_timestamp = max_timestamp
        if self.bytes_since_index > interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(self.max_timestamp_known, self.max_timestamp_offset_known)
            self.bytes_since_index = length
            return True
        self.bytes_since_index += length
        return False

    @property
    def indexes_full(self) -> bool:
        return self.offset_index.full or self.time_index.full

    @property
    def index_room(self) -> int:
        """How many entries the indexes take before one of them is full, the one that fills it included."""
        return min(self.offset_index.room, self.time_index.room)

    # -- searching

    def find(self, offset: int, end: int, nowait: bool = False) -> tuple[int, BatchHeader] | None:
        """Position and header of the first batch in [0, end) whose last offset is at or above `offset`."""
        for position, header in scan_headers(self._reader(nowait), self.offset_index.lookup(offset), end):
            if header.base_offset + header.last_offset_delta >= offset:
                return position, header
        return None

    def _reader(self, nowait: bool) -> Callable[[int, int], bytes]:
        return self._pread_nowait if nowait else self.file.pread

    def _pread_nowait(self, size: int, position: int) -> bytes:
        return self.file.pread_nowait(size, position, HEADER_SIZE)

    def _read_batch(self, header: BatchHeader, position: int, nowait: bool) -> bytes:
        if nowait:
            return self.file.pread_nowait(header.length, position, header.length)
        return self.file.pread(header.length, position)

    def next_offset(self) -> int:
        """One above the last offset in the file, or the base offset: what the log end is if this is the last
        segment."""
        position = self.offset_index.lookup(self.offset_index.last_offset)
        last = None
        for _, header in scan_headers(self.file.pread, position, self.size):
            last = header
        return last.next_offset if last is not None else self.base_offset

    def offset_for_timestamp(
        self, timestamp: int, start_offset: int, nowait: bool = False
    ) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader epoch) of the first record at or after both `timestamp` and `start_offset`."""
        _, indexed_offset = self.time_index.lookup(timestamp)
        start = self.offset_index.lookup(max(indexed_offset, start_offset))
        for position, header in scan_headers(self._reader(nowait), start, self.size, CHUNK_BYTES):
            if header.max_timestamp < timestamp or header.last_offset < start_offset:
                continue
            for record in batch_records(self._read_batch(header, position, nowait), header):
                if record.timestamp >= timestamp and record.offset >= start_offset:
                    return record.offset, record.timestamp, header.partition_leader_epoch
        return None

    def offset_of_max_timestamp(self, nowait: bool = False) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader epoch) of the first record that has the segment's largest timestamp."""
        wanted = self.max_timestamp
        start = self.offset_index.lookup(self.max_timestamp_offset)
        for position, header in scan_headers(self._reader(nowait), start, self.size, CHUNK_BYTES):
            if header.max_timestamp != wanted:
                continue
            for record in batch_records(self._read_batch(header, position, nowait), header):
                if record.timestamp == wanted:
                    return record.offset, wanted, header.partition_leader_epoch
        return None

    def read(self, position: int, size: int) -> FileRange:
        return FileRange(self.file, position, size)

    # -- changing shape

    def truncate_to(self, offset: int) -> int:
        """Removes every batch that reaches `offset` or above; returns how many bytes went."""
        found = self.find(offset, self.size)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        cut = 0
        if found is not None:
            cut = self.size - found[0]
            self.file.truncate(found[0])
            self.size = found[0]
        self.writeback_position = min(self.writeback_position, self.size)
        if self.size == 0:
            self.created_ms = self._environment.clock.now_ms()
            self._first_timestamp = None
        self.bytes_since_index = 0
        self._reload_max_timestamp()
        return cut

    def _reload_max_timestamp(self) -> None:
        """From the last index entry and what the log holds behind it."""
        timestamp, offset = self.time_index.last
        position = self.offset_index.lookup(offset)
        for _, header in scan_headers(self.file.pread, position, self.size, CHUNK_BYTES):
            if header.max_timestamp > timestamp:
                timestamp, offset = header.max_timestamp, header.last_offset
        self.max_timestamp_known, self.max_timestamp_offset_known = timestamp, offset

    def rebuild(
        self, last_valid: int, entries: list[tuple[int, int, int, int]], max_timestamp: tuple[int, int]
    ) -> None:
        """Installs indexes rebuilt by a scan: (last offset, position, timestamp, its offset) each; cuts the file."""
        self.offset_index.reset()
        self.time_index.reset()
        for offset, position, timestamp, timestamp_offset in entries:
            self.offset_index.append(offset, position)
            self.time_index.maybe_append(timestamp, timestamp_offset)
        self.max_timestamp_known, self.max_timestamp_offset_known = max_timestamp
        self._first_timestamp = None
        if self.size != last_valid:
            self.file.truncate(last_valid)
            self.size = last_valid
        self.writeback_position = min(self.writeback_position, self.size)
        self.time_index.maybe_append(*max_timestamp)
        self.bytes_since_index = 0

    def _trim(self) -> None:
        if self.preallocated:
            self.file.truncate(self.size)
            self.preallocated = False

    def become_inactive(self) -> None:
        """The segment takes no more appends: its largest timestamp is indexed and the indexes move to disk."""
        if self.size:
            self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset)
        self.offset_index.deactivate()
        self.time_index.deactivate()
        self._trim()
        self.modified_ms = self._environment.clock.now_ms()

    # -- files

    def create(self, preallocate_bytes: int = 0) -> None:
        """Creates the `.log` file; the indexes come when they have entries or the segment is closed. What an earlier
        crash left under these names goes first. Preallocated bytes are zeros behind `size`, cut when the segment is
        closed."""
        files = self._environment.files
        for path in self.paths():
            files.unlink(path)
        self.file.open()
        if preallocate_bytes > 0:
            self.file.truncate(preallocate_bytes)
            self.preallocated = True

    def sync(self, indexes: bool) -> None:
        """Makes the log durable, and with `indexes` the rest too: needed before the recovery point may pass the
        segment."""
        self.file.fsync()
        if indexes:
            self.offset_index.sync()
            self.time_index.sync()
            self.txn_index.sync()

    @property
    def indexes_unsynced(self) -> bool:
        return self.offset_index.unsynced or self.time_index.unsynced or self.txn_index.unsynced

    def sync_indexes(self) -> None:
        self.offset_index.sync()
        self.time_index.sync()
        self.txn_index.sync()

    def paths(self) -> list[str]:
        return [self.file.path, self.offset_index.path, self.time_index.path, self.txn_index.path]

    def change_suffix(self, suffix: str) -> None:
        """Renames all files. A missing index is no error: it was not written yet, or is rebuilt when the log is
        loaded."""
        files = self._environment.files
        cut = len(self.suffix)
        for part in (self.file, self.offset_index, self.time_index, self.txn_index):
            bare = part.path[:-cut] if cut else part.path
            if files.exists(part.path):
                part.rename(bare + suffix)
            elif isinstance(part, File):
                part.path = bare + suffix
            else:
                part.moved(bare + suffix)
        self.suffix = suffix
        # A late reader may open a deleted file again while it is there, but must not create it.
        self.file.readonly = suffix == DELETED_SUFFIX

    def moved(self, directory: str) -> None:
        """The directory was renamed around the open files."""
        self.directory = directory
        stem = f"{directory}/{self.base_offset:020d}"
        self.file.path = stem + LOG_SUFFIX + self.suffix
        self.offset_index.moved(stem + INDEX_SUFFIX + self.suffix)
        self.time_index.moved(stem + TIME_INDEX_SUFFIX + self.suffix)
        self.txn_index.moved(stem + TXN_INDEX_SUFFIX + self.suffix)

    def close(self) -> None:
        """Brings the indexes to disk and gives the descriptors back; the segment opens itself again when used."""
        if self.max_timestamp_known != _UNKNOWN and self.size:
            self.time_index.maybe_append(self.max_timestamp_known, self.max_timestamp_offset_known)
        self.offset_index.close()
        self.time_index.close()
        self.txn_index.close()
        self._trim()
        self.file.close()

    def drop(self) -> None:
        """Gives the descriptors back without writing anything: the files are about to go."""
        self.offset_index.drop()
        self.time_index.drop()
        self.txn_index.close()
        self.file.close()

    def __repr__(self) -> str:
        return f"Segment({self.base_offset}, size={self.size}, max_timestamp={self.max_timestamp_known})"
