"""The indexes of a segment beside its log: each takes the batches as the scan meets them and says at the end what does
not agree.

An index may be shorter than its log: the entries of the active segment are in the broker's memory, and after a crash
they are rebuilt. What is in the file must be true. Kafka fills the file of an active index with zeros.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from pylogd.storage.segments.index import NO_TIMESTAMP, OffsetIndex, TimeIndex
from pylogd.storage.segments.txnindex import ENTRY, AbortedTxn, CorruptTxnIndex, decode


class OffsetIndexCheck:
    """An entry names the start of a batch and the last offset of it, or of a later batch written by the same call (as
    Kafka did before 4.0)."""

    def __init__(self, data: bytes, base_offset: int, active: bool) -> None:
        self._base = base_offset
        self._active = active
        self.problem = _ragged(data, OffsetIndex.entry.size, active)
        self._entries = self._read(data)
        self._next = next(self._entries, None)
        self._pending: int | None = None

    def _read(self, data: bytes) -> Iterator[tuple[int, int]]:
        whole = len(data) - len(data) % OffsetIndex.entry.size
        last = (-1, -1)
        for entry in OffsetIndex.entry.iter_unpack(data[:whole]):
            if entry == (0, 0) and self._active:
                return
            if entry[0] <= last[0] or entry[1] <= last[1]:
                self._complain(f"entry ({entry[0]}, {entry[1]}) does not follow ({last[0]}, {last[1]})")
                return
            last = entry
            yield self._base + entry[0], entry[1]

    def _complain(self, problem: str) -> None:
        if not self.problem:
            self.problem = problem

    def batch(self, position: int, last_offset: int) -> None:
        if self._pending is not None and last_offset >= self._pending:
            if last_offset != self._pending:
                self._complain(f"offset {self._pending} is the last of no batch")
            self._pending = None
        while self._next is not None and self._next[1] <= position:
            offset, at = self._next
            if at < position:
                self._complain(f"position {at} of offset {offset} is not the start of a batch")
            elif offset < last_offset:
                self._complain(f"position {at} has a batch that ends with {last_offset}, not with {offset}")
            elif offset > last_offset:
                self._pending = offset
            self._next = next(self._entries, None)

    def skip_to(self, position: int) -> None:
        """The log could not be read up to here."""
        self._pending = None
        while self._next is not None and self._next[1] < position:
            self._next = next(self._entries, None)

    def position_after(self, position: int) -> int | None:
        """Where the next indexed batch begins: reading can go on there behind unreadable bytes."""
        while self._next is not None and self._next[1] <= position:
            self._next = next(self._entries, None)
        return None if self._next is None else self._next[1]

    def finish(self) -> None:
        # A broker that runs may have written batch and entry after the scan saw the end.
        if not self._active and (self._next is not None or self._pending is not None):
            offset = self._next[0] if self._next is not None else self._pending
            self._complain(f"the entry of offset {offset} lies behind the end of the log")


class TimeIndexCheck:
    """An entry is the largest timestamp up to a batch, and an offset of the batch that has it."""

    def __init__(self, data: bytes, base_offset: int, active: bool) -> None:
        self._base = base_offset
        self._active = active
        self.problem = _ragged(data, TimeIndex.entry.size, active)
        self._entries = self._read(data)
        self._next = next(self._entries, None)
        # A batch that compaction left without records keeps its timestamp, which may be in the index or not.
        self._largest = self._largest_with_records = NO_TIMESTAMP

    def _read(self, data: bytes) -> Iterator[tuple[int, int]]:
        whole = len(data) - len(data) % TimeIndex.entry.size
        last = (NO_TIMESTAMP - 1, -1)
        for entry in TimeIndex.entry.iter_unpack(data[:whole]):
            if entry == (0, 0) and self._active:
                return
            if entry[0] <= last[0] or entry[1] < last[1]:
                self._complain(f"entry ({entry[0]}, {entry[1]}) does not follow ({last[0]}, {last[1]})")
                return
            last = entry
            yield entry[0], self._base + entry[1]

    def _complain(self, problem: str) -> None:
        if not self.problem:
            self.problem = problem

    def batch(self, last_offset: int, max_timestamp: int, empty: bool) -> None:
        if max_timestamp > self._largest:
            self._largest = max_timestamp
        if not empty and max_timestamp > self._largest_with_records:
            self._largest_with_records = max_timestamp
        while self._next is not None and self._next[1] <= last_offset:
            timestamp, offset = self._next
            if timestamp not in (self._largest, self._largest_with_records):
                self._complain(f"says {timestamp} for offset {offset}; the largest timestamp there is {self._largest}")
            self._next = next(self._entries, None)

    def give_up(self) -> None:
        """Some batches cannot be read: what is the largest is not known any more."""
        self._next = None
        self._entries = iter(())

    def finish(self) -> None:
        if not self._active and self._next is not None:
            self._complain(f"the entry of offset {self._next[1]} lies behind the end of the log")


def check_aborted(
    data: bytes, markers: list[tuple[int, int | None, int]], base_offset: int, end_offset: int, *, exact: bool
) -> str:
    """What does not agree between `.txnindex` and the abort markers of a segment, or "". A marker is (producer id,
    first offset of its transaction if that was seen, its own offset). Compaction removes markers and keeps entries, so
    only `exact` logs have one for each."""
    try:
        entries = decode(data)
    except CorruptTxnIndex as error:
        return str(error)
    if len(data) % ENTRY.size:
        return f"{len(data)} bytes are not a multiple of {ENTRY.size}"
    last = base_offset - 1
    for entry in entries:
        if not last < entry.last_offset or entry.first_offset > entry.last_offset:
            return f"{_text(entry)} is out of order"
        last = entry.last_offset
    if not exact:
        return ""
    ends = [offset for _, _, offset in markers]
    for entry in entries:
        if entry.last_offset >= end_offset:
            break
        at = bisect_right(ends, entry.last_offset) - 1
        if at < 0 or markers[at][2] != entry.last_offset or markers[at][0] != entry.producer_id:
            return f"{_text(entry)} has no abort marker"
        if markers[at][1] not in (None, entry.first_offset):
            return f"{_text(entry)} began at {markers[at][1]}"
    known = {entry.last_offset for entry in entries}
    for producer_id, first, offset in markers:
        if first is not None and offset not in known:
            return f"the abort of producer {producer_id} at {offset} is missing"
    return ""


def _text(entry: AbortedTxn) -> str:
    return f"the aborted transaction of producer {entry.producer_id} from {entry.first_offset} to {entry.last_offset}"


def _ragged(data: bytes, entry_size: int, active: bool) -> str:
    # The last entry of an active index may be on its way.
    return "" if active or not len(data) % entry_size else f"{len(data)} bytes are not a multiple of {entry_size}"
