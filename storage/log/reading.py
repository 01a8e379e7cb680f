"""The way out: from an offset to a range of a file.

A read of recent batches is answered from memory, without touching index or file; an older one by the index and a look
at a few headers. Only the loop's thread reads a log: mappings and descriptors may be dropped between two of its calls.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.runtime.files import FileRange
from pylogd.storage.log import offset_lookup
from pylogd.storage.log.log_state import LogState
from pylogd.storage.segments.txnindex import AbortedTxn


class LogRead:
    """What a read found: `range` is None when nothing is there below the ceiling. `first_batch_size` tells whether a
    smaller limit would still move the reader on; `tail` that the bytes were written moments ago and are surely in
    memory."""

    __slots__ = ("first_batch_size", "range", "segment_base_offset", "size", "tail")

    def __init__(
        self, found: FileRange | None, size: int, first_batch_size: int, segment_base_offset: int, tail: bool
    ) -> None:
        self.range = found
        self.size = size
        self.first_batch_size = first_batch_size
        self.segment_base_offset = segment_base_offset
        self.tail = tail

    def __repr__(self) -> str:
        return f"LogRead({self.range!r})"


def _negative(max_bytes: int) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Invalid max length {max_bytes} for a read of the log")


class Reading(LogState):
    """Reads by offset, by time and by leader epoch."""

    __slots__ = ()

    def read(
        self, offset: int, max_bytes: int, ceiling: int, at_least_one: bool = True, nowait: bool = False
    ) -> LogRead:
        """Whole batches from the one that holds `offset` up to `ceiling` (high watermark, last stable offset or log
        end), at most `max_bytes`; the first batch even if it is larger, when `at_least_one`. OFFSET_OUT_OF_RANGE
        outside the log.

        The start of an older read is found by looking into the file. With `nowait` ColdRead is raised when that is not
        in memory: a worker runs `range.warm()` of it, and the caller asks again. Only the loop's thread ever reads a
        log."""
        if self.offline:
            raise self._storage_error()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Received request for offset {offset} for partition {self.name}, but the log holds only "
                f"[{self.log_start_offset}, {self.log_end_offset}].",
            )
        if offset >= ceiling:
            return LogRead(None, 0, 0, self.active.base_offset, True)
        if offset < self._recent_start:
            return self._read_indexed(offset, max_bytes, ceiling, at_least_one, nowait)
        segment = self.active
        offsets, positions = self._recent_offsets, self._recent_positions
        slot = bisect_left(offsets, offset)
        if slot == len(offsets):  # a gap at the very end: nothing at or above `offset`
            return LogRead(None, 0, 0, segment.base_offset, True)
        start = positions[slot]
        end = segment.size if ceiling >= self.log_end_offset else positions[bisect_left(offsets, ceiling, slot)]
        size = end - start
        if size <= 0:
            return LogRead(None, 0, 0, segment.base_offset, True)
        first_size = (positions[slot + 1] if slot + 1 < len(positions) else segment.size) - start
        if size > max_bytes:
            if max_bytes < 0:
                raise _negative(max_bytes)
            size = positions[bisect_right(positions, start + max_bytes, slot) - 1] - start
            if size == 0:
                if not at_least_one:
                    return LogRead(None, 0, first_size, segment.base_offset, True)
                size = first_size
        return LogRead(FileRange(segment.file, start, size), size, first_size, segment.base_offset, True)

    def _read_indexed(self, offset: int, max_bytes: int, ceiling: int, at_least_one: bool, nowait: bool) -> LogRead:
        segments = self.segments
        segment = segments.floor(offset)
        while segment is not None:
            limit = segment.size
            found = segment.find(offset, limit, nowait)
            following = segments.higher(segment.base_offset)
            if found is None:
                segment = following
                continue
            start, header = found
            if ceiling < (self.log_end_offset if following is None else following.base_offset):
                stop = segment.find(ceiling, limit, nowait)
                limit = stop[0] if stop is not None else limit
            size = limit - start
            first_size = header.length
            if size <= 0:
                break
            if size > max_bytes:
                if max_bytes < 0:
                    raise _negative(max_bytes)
                # Without an indexed boundary on the way the last batch may be cut, as a Kafka broker would cut it.
                size = segment.offset_index.floor_position(start + max_bytes) - start
                if size <= 0 and first_size > max_bytes and not at_least_one:
                    return LogRead(None, 0, first_size, segment.base_offset, False)
                if size <= 0:
                    size = max(first_size, max_bytes)
            return LogRead(FileRange(segment.file, start, size), size, first_size, segment.base_offset, False)
        return LogRead(None, 0, 0, self.active.base_offset, False)

    def offset_for_timestamp(self, timestamp: int, nowait: bool = False) -> offset_lookup.TimestampOffset | None:
        """The first record at or after `timestamp`, or what one of ListOffsets' special timestamps asks for. `nowait`
        as for `read`; a long search may be cold several times."""
        return offset_lookup.offset_for_timestamp(self, timestamp, nowait)

    def offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch at or below the given one; (-1, -1) when unknown."""
        return self.epochs.end_offset_for(leader_epoch, self.log_end_offset)

    # -- transactions

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of a transaction that is open, or closed by a marker above the high watermark."""
        producers = self.producers
        if producers.unreplicated:
            producers.on_high_watermark(self.high_watermark)
        first = producers.first_unstable_offset
        return None if first is None else max(first, self.log_start_offset)

    @property
    def last_stable_offset(self) -> int:
        """Where a read_committed consumer stops."""
        if not self.producers.ongoing and not self.producers.unreplicated:
            return self.high_watermark
        first = self.first_unstable_offset
        return self.high_watermark if first is None else min(first, self.high_watermark)

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTxn]:
        """The aborted transactions that touch [start, end)."""
        found: list[AbortedTxn] = []
        segment = self.segments.floor(start)
        while segment is not None:
            transactions, complete = segment.txn_index.collect(start, end)
            found += transactions
            if complete:
                break
            segment = self.segments.higher(segment.base_offset)
        return found
