"""The segments of a log in offset order."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from pylogd.storage.segments.segment import Segment


class Segments:
    """A sorted list with binary search; the last one is active. Never shared between threads while it changes: readers
    in worker threads take `snapshot()`."""

    __slots__ = ("_bases", "_segments")

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._segments: list[Segment] = []

    def add(self, segment: Segment) -> None:
        """Adds the segment, or replaces the one with the same base offset."""
        slot = bisect_left(self._bases, segment.base_offset)
        if slot < len(self._bases) and self._bases[slot] == segment.base_offset:
            self._segments[slot] = segment
        else:
            self._bases.insert(slot, segment.base_offset)
            self._segments.insert(slot, segment)

    def remove(self, segment: Segment) -> None:
        """Takes the segment out, unless another one already took its place."""
        slot = bisect_left(self._bases, segment.base_offset)
        if slot < len(self._bases) and self._segments[slot] is segment:
            del self._bases[slot]
            del self._segments[slot]

    def floor(self, offset: int) -> Segment | None:
        """The segment whose range holds `offset`."""
        slot = bisect_right(self._bases, offset) - 1
        return self._segments[slot] if slot >= 0 else None

    def higher(self, offset: int) -> Segment | None:
        """The first segment whose base offset is above `offset`."""
        slot = bisect_right(self._bases, offset)
        return self._segments[slot] if slot < len(self._bases) else None

    def lower(self, offset: int) -> Segment | None:
        """The last segment whose base offset is below `offset`."""
        slot = bisect_left(self._bases, offset) - 1
        return self._segments[slot] if slot >= 0 else None

    def between(self, start: int, end: int) -> list[Segment]:
        """The segments that may hold offsets in [start, end)."""
        first = max(bisect_right(self._bases, start) - 1, 0)
        return self._segments[first : bisect_left(self._bases, end)] if start < end else []

    @property
    def first(self) -> Segment:
        return self._segments[0]

    @property
    def last(self) -> Segment:
        return self._segments[-1]

    @property
    def base_offsets(self) -> list[int]:
        return list(self._bases)

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self._segments)

    def snapshot(self) -> list[Segment]:
        return list(self._segments)

    def clear(self) -> None:
        self._bases.clear()
        self._segments.clear()

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    def __bool__(self) -> bool:
        return bool(self._segments)
