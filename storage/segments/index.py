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

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from struct import Struct

from pylogd.storage.segments.sparse_index import UNWRITTEN_MAX, CorruptIndex, SparseIndex

_OFFSET_ENTRY = Struct(">Ii")
_TIME_ENTRY = Struct(">qI")

#: What a time index without entries answers.
NO_TIMESTAMP = -1


class OffsetIndex(SparseIndex):
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
        if self._count - self._written >= UNWRITTEN_MAX:
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


class TimeIndex(SparseIndex):
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
        if self._count - self._written >= UNWRITTEN_MAX:
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
