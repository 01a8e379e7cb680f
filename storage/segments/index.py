"""The sparse indexes of a segment: from offset to file position, and from timestamp to offset.

Bytes (Kafka's): big-endian entries without header.
    .index      int32 offset relative to the segment's base, int32 position of the batch that ends with that offset
    .timeindex  int64 largest timestamp so far, int32 relative offset of the batch that has it
Both columns of both files never decrease. An entry is added when more than `index.interval.bytes` of log lie behind the
last one. A lookup finds the last entry at or below the target; the log is scanned from there.

Crash policy: the index of the active segment lives in memory and reaches the disk when its segment is rolled, closed or
flushed past its end. After an unclean stop every segment from the recovery point on is scanned and its indexes are
rebuilt, so their bytes need not be durable before that. A closed index is read through a read-only mapping, which is
dropped before any truncation: a read behind the new end would be SIGBUS. Kafka preallocates the active index with zeros
and trims it on close; ours holds only true entries at any time, which is the trimmed form.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from struct import Struct

from pylogd.runtime.files import DISK_FULL_ERRORS, File, FileSystem

_OFFSET_ENTRY = Struct(">Ii")
_TIME_ENTRY = Struct(">qI")
_NATIVE_IS_BIG = array("H", b"\x00\x01")[0] == 1
#: Entries that may wait in memory before they are written: bounds the work of a roll.
_UNWRITTEN_MAX = 2048

#: What a time index without entries answers.
NO_TIMESTAMP = -1


class CorruptIndex(Exception):
    """The file cannot be an index of its segment; it is rebuilt from the log."""


class _Index:
    """What both indexes share: entries on disk up to `_written`, and while active also in memory as two columns."""

    __slots__ = (
        "_count",
        "_file",
        "_keys",
        "_system",
        "_unsynced",
        "_values",
        "_written",
        "base_offset",
        "entries_max",
    )

    entry: Struct
    key_code: str
    #: Slots kept for the entry that closes the segment.
    entries_reserved = 0

    def __init__(self, system: FileSystem, path: str, base_offset: int, bytes_max: int, new: bool = False) -> None:
        self._system = system
        self._file: File = system.file(path)
        self.base_offset = base_offset
        self.entries_max = bytes_max // self.entry.size
        self._count = 0 if new else -1
        self._written = 0
        self._unsynced = False
        self._keys: array[int] | None = array(self.key_code) if new else None
        self._values: array[int] | None = array("I") if new else None

    @property
    def path(self) -> str:
        return self._file.path

    @property
    def entries(self) -> int:
        if self._count < 0:
            self._measure()
        return self._count

    def _measure(self) -> None:
        try:
            size = self._file.size() if self._system.exists(self._file.path) else 0
        finally:
            self._file.close()
        self._written = self._count = size // self.entry.size

    def measured(self, size: int) -> None:
        """The caller has listed the directory and knows the size of the file."""
        self._written = self._count = size // self.entry.size

    @property
    def in_memory(self) -> bool:
        """True for the index of a segment that is or was appended to: closing it writes."""
        return self._keys is not None

    # -- the two forms

    def activate(self) -> None:
        """Brings the entries into memory, where appends go."""
        if self._keys is not None:
            return
        count = self.entries
        data = self._file.pread(count * self.entry.size, 0) if count else b""
        self._file.close()
        self._keys, self._values = _columns(data, self.key_code)

    def deactivate(self) -> None:
        """Writes what is missing on disk and forgets the columns; lookups go through a mapping from now on."""
        if self._keys is None:
            return
        self.write_out()
        self._keys = self._values = None

    def write_out(self) -> None:
        """Brings the file up to date; not durable before `sync()`. Creates the file even when there are no entries."""
        keys, values = self._keys, self._values
        if keys is None or values is None:
            return
        written = self._written
        if written and written == self._count:
            return
        self._unsynced = True
        if written == 0:
            # A file left behind by an earlier life of this segment must not outlive the first write.
            self._file.truncate(0)
        if written < self._count:
            self._file.pwrite(_interleave(keys[written:], values[written:]), written * self.entry.size)
            self._written = self._count
        self._file.close()

    def _write_early(self) -> None:
        """Part of an append that has succeeded: on a full disk the entries wait in memory, and closing insists."""
        try:
            self.write_out()
        except OSError as error:
            if error.errno not in DISK_FULL_ERRORS:
                raise

    @property
    def unsynced(self) -> bool:
        return self._unsynced

    def sync(self) -> None:
        """Worker, for a closed index: through a descriptor of its own, because the owner may be reading the mapping."""
        if self._unsynced:
            handle = self._system.file(self._file.path, readonly=True)
            handle.fsync()
            handle.close()
            self._unsynced = False

    @property
    def full(self) -> bool:
        return self.room <= 0

    @property
    def room(self) -> int:
        """How many entries it takes until it is full."""
        return self.entries_max - self.entries_reserved - self.entries

    # -- entries

    def _entry(self, n: int) -> tuple[int, int]:
        keys, values = self._keys, self._values
        if keys is not None and values is not None:
            return keys[n], values[n]
        key, value = self.entry.unpack_from(self._file.map(), n * self.entry.size)
        return key, value

    def _last_entry(self, count: int) -> tuple[int, int]:
        """Without a mapping: loading thousands of logs looks at the last entry of each and at nothing else."""
        if self._keys is not None or self._file.mapped:
            return self._entry(count - 1)
        key, value = self.entry.unpack(self._file.pread(self.entry.size, (count - 1) * self.entry.size))
        self._file.close()
        return key, value

    def _floor(self, key: int) -> int:
        """The last entry whose key is at or below `key`, or -1."""
        if self._keys is not None:
            return bisect_right(self._keys, key) - 1
        count = self.entries
        if count == 0:
            return -1
        data = self._file.map()
        size = self.entry.size
        unpack = self.entry.unpack_from
        low, high = 0, count
        while low < high:
            middle = (low + high) >> 1
            if unpack(data, middle * size)[0] <= key:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def _cut(self, count: int) -> None:
        """Forgets the entries from `count` on, on disk too."""
        if count >= self.entries:
            return
        self._file.close()
        if self._keys is not None and self._values is not None:
            del self._keys[count:]
            del self._values[count:]
        if self._written > count:
            self._file.truncate(count * self.entry.size)
            self._file.close()
            self._written = count
            self._unsynced = True
        self._count = count

    def reset(self) -> None:
        """Empties the index, in memory and on disk, ready for appends."""
        self._file.close()
        if self._system.exists(self._file.path):
            self._file.truncate(0)
            self._file.close()
            self._unsynced = True
        self._count = self._written = 0
        self._keys, self._values = array(self.key_code), array("I")

    # -- the file

    def exists(self) -> bool:
        return self._system.exists(self._file.path)

    def rename(self, path: str) -> None:
        self._file.rename(path)

    def moved(self, path: str) -> None:
        """The directory was renamed around us."""
        self._file.path = path

    def close(self) -> None:
        self.write_out()
        self._keys = self._values = None
        self._file.close()

    def drop(self) -> None:
        """Closes the handle without writing; for files about to be deleted."""
        self._keys = self._values = None
        self._count = -1
        self._file.close()

    def _check_length(self) -> None:
        try:
            size = self._file.size()
        finally:
            self._file.close()
        if size % self.entry.size:
            raise CorruptIndex(f"{self.path}: {size} bytes are not a multiple of {self.entry.size}")


def _interleave(keys: array[int], values: array[int]) -> bytes:
    """Columns to entries, without a loop over them: the roll of a large segment must not stall the event loop."""
    if not _NATIVE_IS_BIG:
        keys.byteswap()
        values.byteswap()
    words = array("I", keys.tobytes())
    width = keys.itemsize // 4
    entries = array("I", bytes(4 * (width + 1) * len(values)))
    for word in range(width):
        entries[word :: width + 1] = words[word::width]
    entries[width :: width + 1] = values
    return entries.tobytes()


def _columns(data: bytes, key_code: str) -> tuple[array[int], array[int]]:
    """Entries to columns."""
    keys, entries = array(key_code), array("I", data)
    width = keys.itemsize // 4
    words = array("I", bytes(4 * width * (len(entries) // (width + 1))))
    for word in range(width):
        words[word::width] = entries[word :: width + 1]
    keys.frombytes(words.tobytes())
    values = entries[width :: width + 1]
    if not _NATIVE_IS_BIG:
        keys.byteswap()
        values.byteswap()
    return keys, values


class OffsetIndex(_Index):
    """Relative offset of a batch's last record -> position of the batch."""

    __slots__ = ()

    entry = _OFFSET_ENTRY
    key_code = "I"

    @property
    def last_offset(self) -> int:
        """The offset of the last entry, or the base offset."""
        count = self.entries
        return self.base_offset + (self._last_entry(count)[0] if count else 0)

    def append(self, offset: int, position: int) -> None:
        keys, values = self._keys, self._values
        if keys is None or values is None:
            self.activate()
            keys, values = self._keys, self._values
            assert keys is not None
            assert values is not None
        relative = offset - self.base_offset
        if keys and relative <= keys[-1]:
            raise ValueError(f"{self.path}: offset {offset} is not above the last indexed one")
        keys.append(relative)
        values.append(position)
        self._count += 1
        if self._count - self._written >= _UNWRITTEN_MAX:
            self._write_early()

    def lookup(self, offset: int) -> int:
        """A position at or before the batch that holds `offset`: that of the last entry at or below it, or 0."""
        relative = offset - self.base_offset
        keys = self._keys
        if keys is not None and self._values is not None:
            slot = bisect_right(keys, relative) - 1
            return self._values[slot] if slot >= 0 else 0
        slot = self._floor(relative)
        return self._entry(slot)[1] if slot >= 0 else 0

    def floor_position(self, position: int) -> int:
        """The start of the last indexed batch at or before `position`, or 0."""
        if self._values is not None:
            slot = bisect_right(self._values, position) - 1
            return self._values[slot] if slot >= 0 else 0
        slot = self._position_slot(position)
        return self._entry(slot - 1)[1] if slot > 0 else 0

    def upper_offset(self, position: int) -> int | None:
        """The offset of the first entry at or behind `position`, or None: an upper bound of what lies before it."""
        slot = self._position_slot(position - 1) if self._values is None else bisect_left(self._values, position)
        return self.base_offset + self._entry(slot)[0] if slot < self.entries else None

    def _position_slot(self, position: int) -> int:
        """How many entries lie at or before `position`."""
        low, high = 0, self.entries
        while low < high:
            middle = (low + high) >> 1
            if self._entry(middle)[1] <= position:
                low = middle + 1
            else:
                high = middle
        return low

    def truncate_to(self, offset: int) -> None:
        """Keeps the entries below `offset`."""
        self._cut(self._floor(offset - self.base_offset - 1) + 1 if offset > self.base_offset else 0)

    def items(self) -> Iterator[tuple[int, int]]:
        for n in range(self.entries):
            relative, position = self._entry(n)
            yield self.base_offset + relative, position

    def sanity_check(self) -> None:
        self._check_length()
        count = self.entries
        if count and (self._entry(count - 1)[0] >= 1 << 31 or self._entry(count - 1) < self._entry(0)):
            raise CorruptIndex(f"{self.path}: the last entry lies below the base offset {self.base_offset}")


class TimeIndex(_Index):
    """Largest timestamp so far -> relative offset of the batch that has it."""

    __slots__ = ()

    entry = _TIME_ENTRY
    key_code = "q"
    entries_reserved = 1

    @property
    def last(self) -> tuple[int, int]:
        """(timestamp, offset) of the last entry, or (-1, base offset)."""
        count = self.entries
        if not count:
            return NO_TIMESTAMP, self.base_offset
        timestamp, relative = self._last_entry(count)
        return timestamp, self.base_offset + relative

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Adds the entry unless its timestamp is no later than the last one's."""
        keys, values = self._keys, self._values
        if keys is None or values is None:
            self.activate()
            keys, values = self._keys, self._values
            assert keys is not None
            assert values is not None
        if timestamp <= (keys[-1] if keys else NO_TIMESTAMP):
            return
        relative = offset - self.base_offset
        if values and relative < values[-1]:
            raise ValueError(f"{self.path}: offset {offset} lies below the last indexed one")
        keys.append(timestamp)
        values.append(relative)
        self._count += 1
        if self._count - self._written >= _UNWRITTEN_MAX:
            self._write_early()

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """The last entry at or before `timestamp`, or (-1, base offset)."""
        slot = self._floor(timestamp)
        if slot < 0:
            return NO_TIMESTAMP, self.base_offset
        found, relative = self._entry(slot)
        return found, self.base_offset + relative

    def truncate_to(self, offset: int) -> None:
        """Keeps the entries below `offset`."""
        relative = offset - self.base_offset
        low, high = 0, self.entries
        while low < high:
            middle = (low + high) >> 1
            if self._entry(middle)[1] < relative:
                low = middle + 1
            else:
                high = middle
        self._cut(low)

    def items(self) -> Iterator[tuple[int, int]]:
        for n in range(self.entries):
            timestamp, relative = self._entry(n)
            yield timestamp, self.base_offset + relative

    def sanity_check(self) -> None:
        self._check_length()
        count = self.entries
        if not count:
            return
        first, last = self._entry(0), self._entry(count - 1)
        if last[0] < first[0]:
            raise CorruptIndex(f"{self.path}: the last timestamp {last[0]} is before the first one {first[0]}")
        if last[1] >= 1 << 31:
            raise CorruptIndex(f"{self.path}: the last offset lies below the base offset {self.base_offset}")
