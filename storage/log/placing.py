"""Several small batches in one write: they get their places first, then they are written together.

Pipelining clients send many requests at once, and a write of its own for each is a large part of what a small one
costs. Only batches that need nothing but a place are taken; the bytes and books that come out are those of appending
them one by one.
"""

from __future__ import annotations

from struct import Struct

from pylogd.storage.log.appending import RECENT_MAX, Appending
from pylogd.storage.log.plain_header import plain_header
from pylogd.storage.segments.segment import Segment

_stamp = Struct(">qii").pack_into


class Placement:
    """Batches that have their places at the end of the log, offsets stamped into them, and are not written yet."""

    __slots__ = (
        "_batches",
        "_log",
        "bases",
        "end",
        "indexed",
        "last_offsets",
        "positions",
        "since_index",
        "timestamp",
    )

    def __init__(
        self,
        log: Placing,
        batches: list[memoryview],
        bases: list[int],
        last_offsets: list[int],
        positions: list[int],
        end: int,
        indexed: list[tuple[int, int, int, int]],
        since_index: int,
        *timestamp: int,
    ) -> None:
        self._log = log
        self._batches = batches[: len(bases)]
        self.bases = bases
        self.last_offsets = last_offsets
        self.positions = positions
        #: The size of the segment with them.
        self.end = end
        #: The batches that get an index entry: last offset, position, largest timestamp up to it and its offset.
        self.indexed = indexed
        self.since_index = since_index
        #: The segment's largest timestamp and its offset.
        self.timestamp = timestamp

    def forget(self) -> None:
        """Leaves the batches as they came."""
        for records in self._batches:
            _stamp(records, 0, 0, len(records) - 12, 0)

    def write(self) -> None:
        """KafkaError when nothing could be written."""
        log, batches, start = self._log, self._batches, self.positions[0]
        segment = log.active
        # A few small batches: joining them costs less than a vector.
        data = batches[0] if len(batches) == 1 else b"".join(batches)
        file = segment.file
        try:
            written = log._pwrite(file.fd if file.fd >= 0 else file.open(), data, start)
            if written != self.end - start:
                file.pwrite(memoryview(data)[written:], start + written)
        except OSError as error:
            raise log._undo_write(segment, error) from error
        file.used = True
        log._written(self, segment)


class Placing(Appending):
    """Appends of several batches at once."""

    __slots__ = ()

    def place(self, batches: list[memoryview], leader_epoch: int, now_ms: int) -> Placement | None:
        """Gives clients' batches their places for one write, from the first on, as far as nothing but that is to be
        decided: up to one that has a producer, makes the log roll or is not in order. None when that is the first one;
        `append_as_leader` says what is wrong with it. Nothing may be appended between this and `Placement.write`."""
        if self.offline or not self._plain or leader_epoch != self._epoch or now_ms > self._roll_now_ms:
            return None
        segment = self.active
        position = segment.size
        offset = self.log_end_offset
        since_index, index_interval = segment.bytes_since_index, self._index_interval_bytes
        size_max, timestamp_max = self._size_max, min(self._roll_timestamp, now_ms + self._after_max_ms)
        position_max, last_offset_max = self._segment_bytes, self._last_offset_max
        timestamp, timestamp_offset = segment.max_timestamp_known, segment.max_timestamp_offset_known
        indexed: list[tuple[int, int, int, int]] = []
        index_room = 1  # until there is an entry
        bases: list[int] = []
        last_offsets: list[int] = []
        positions: list[int] = []
        for records in batches:
            plain = plain_header(records, size_max, timestamp_max)
            if plain is None:
                break
            delta, max_timestamp, header = plain
            size = len(records)
            last_offset = offset + delta
            if header is not None or position + size > position_max or last_offset > last_offset_max:
                break
            if max_timestamp > timestamp:
                timestamp, timestamp_offset = max_timestamp, last_offset
            if since_index <= index_interval:
                since_index += size
            else:
                if not indexed:
                    index_room = segment.index_room
                indexed.append((last_offset, position, timestamp, timestamp_offset))
                since_index = size
                index_room -= 1
            _stamp(records, 0, offset, size - 12, leader_epoch)
            bases.append(offset)
            last_offsets.append(last_offset)
            positions.append(position)
            offset = last_offset + 1
            position += size
            if index_room <= 0:
                break
        if not bases:
            return None
        return Placement(
            self, batches, bases, last_offsets, positions, position, indexed, since_index, timestamp, timestamp_offset
        )

    def _written(self, placed: Placement, segment: Segment) -> None:
        """The books of several batches in one write; for each what `append_as_leader` notes."""
        segment.size = placed.end
        self.log_end_offset = placed.last_offsets[-1] + 1
        recent = self._recent_offsets
        if not recent:
            self._recent_start = placed.bases[0]
        recent.extend(placed.last_offsets)
        self._recent_positions.extend(placed.positions)
        if len(recent) > RECENT_MAX:
            self._forget_recent()
        segment.max_timestamp_known, segment.max_timestamp_offset_known = placed.timestamp
        try:
            for last_offset, position, *timestamp in placed.indexed:
                self._index(segment, last_offset, position, timestamp, placed.end)
        except OSError as error:
            raise self._books_failed(error) from error
        segment.bytes_since_index = placed.since_index
        if self.log_end_offset - self.recovery_point >= self._flush_messages:
            self.environment.request_flush(self)
