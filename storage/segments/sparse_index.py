"""What both indexes of a segment share: entries of two columns, in memory while the segment is active, else in a file.

`index` says which bytes they are and what a crash may do to them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from struct import Struct

from pylogd.runtime.files import DISK_FULL_ERRORS, File, FileSystem

_NATIVE_IS_BIG = array("H", b"\x00\x01")[0] == 1
#: Entries that may wait in memory before they are written: bounds the work of a roll.
UNWRITTEN_MAX = 2048


class CorruptIndex(Exception):
    """The file cannot be an index of its segment; it is rebuilt from the log."""


class SparseIndex:
    """Entries on disk up to `_written`, and while active also in memory as two columns."""

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
