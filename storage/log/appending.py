"""The way in: a batch is checked, gets its place, and is written where it lies.

The hot path of the broker. A header is parsed once, the bytes are not copied, and most appends are one system call and
a few assignments; what is rare (rolling, another timestamp type, a full disk) is decided by one comparison each.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import ClassVar

from pylogd.protocol.batch import CONTROL_FLAG, BatchHeader
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.runtime.files import DISK_FULL_ERRORS
from pylogd.storage.log import rolling
from pylogd.storage.log.log_state import DiskFull, LogState
from pylogd.storage.log.plain_header import plain_header
from pylogd.storage.producers.producer_replay import replay
from pylogd.storage.producers.producer_state import BatchMeta, Marker, read_marker
from pylogd.storage.producers.verification_guard import Guard
from pylogd.storage.segments.segment import RELATIVE_OFFSET_MAX, Segment
from pylogd.storage.validation import Origin, validate_append, validate_given

_stamp = Struct(">qii").pack_into
_CLIENT = Origin.CLIENT
_COORDINATOR = Origin.COORDINATOR
_RAFT_LEADER = Origin.RAFT_LEADER

#: Batches at the end of the active segment whose positions are kept in memory; half of them go when the list is full.
RECENT_MAX = 512
#: Dirty bytes at which write-back of the active segment is started.
_WRITEBACK_BYTES = 8 << 20


class AppendInfo:
    """Where a batch went."""

    __slots__ = ("base_offset", "last_offset", "log_append_time_ms", "log_start_offset")

    duplicate: ClassVar[bool] = False

    def __init__(self, base_offset: int, last_offset: int, log_append_time_ms: int, log_start_offset: int) -> None:
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset

    def __repr__(self) -> str:
        return f"AppendInfo({self.base_offset}..{self.last_offset}, duplicate={self.duplicate})"


class Duplicate(AppendInfo):
    """The batch was there already, and these are the offsets of the original."""

    __slots__ = ()

    duplicate = True

    @classmethod
    def of(cls, original: BatchMeta, log_start_offset: int) -> Duplicate:
        return cls(original.first_offset, original.last_offset, original.timestamp, log_start_offset)


class Appending(LogState):
    """Appends as leader and as follower."""

    __slots__ = ()

    def append_as_leader(
        self,
        records: memoryview,
        leader_epoch: int,
        *,
        now_ms: int,
        origin: Origin = _CLIENT,
        version: int = 13,
        transaction_version: int = 0,
        guard: Guard | None = None,
    ) -> AppendInfo:
        """Checks one batch, gives it its offset and leader epoch in place, and writes it. KafkaError when it is
        refused; then nothing has changed. A Raft leader's batches come with offset and epoch."""
        if self.offline:
            raise self._storage_error()
        if origin is _RAFT_LEADER:
            return self._append_of_quorum(records, leader_epoch, now_ms)
        plain = None
        if version > 6 and (self._plain if origin is _CLIENT else self._plain_keyed and origin is _COORDINATOR):
            plain = plain_header(records, self._size_max, now_ms + self._after_max_ms)
        if plain is not None:
            delta, max_timestamp, header = plain
            append_time_ms = -1
        else:
            records, delta, max_timestamp, header, append_time_ms = self._looked_into(records, now_ms, origin, version)
        offset = self.log_end_offset
        last_offset = offset + delta
        marker = None
        if header is not None:
            header.base_offset = offset
            marker = read_marker(records, header) if header.attributes & CONTROL_FLAG else None
            original = self.producers.check(header, offset, origin, marker, transaction_version, guard)
            if original is not None:
                return Duplicate.of(original, self.log_start_offset)
        size = len(records)
        segment = self.active
        position = segment.size
        if (
            position + size > self._segment_bytes
            or max_timestamp > self._roll_timestamp
            or now_ms > self._roll_now_ms
            or last_offset > self._last_offset_max
        ):
            segment = self._roll_if_due(size, offset, last_offset, max_timestamp, now_ms)
            position = segment.size
        if leader_epoch != self._epoch:
            self._assign_epoch(leader_epoch, offset)
        _stamp(records, 0, offset, size - 12, leader_epoch)
        file = segment.file
        try:
            written = self._pwrite(file.fd if file.fd >= 0 else file.open(), records, position)
            if written != size:
                file.pwrite(records[written:], position + written)
        except OSError as error:
            # As it came: a short path that gives up hands the same bytes to the full one, which wants base offset 0.
            _stamp(records, 0, 0, size - 12, leader_epoch)
            raise self._undo_write(segment, error) from error
        file.used = True
        self._keep_books(segment, position, size, last_offset, max_timestamp, header, marker)
        return AppendInfo(offset, last_offset, append_time_ms, self.log_start_offset)

    def _append_of_quorum(self, records: memoryview, leader_epoch: int, now_ms: int) -> AppendInfo:
        given = self._append_given(records, leader_epoch, _RAFT_LEADER, now_ms)
        if given is None:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"No whole batch in an append to {self.name}.")
        return given

    def _looked_into(
        self, records: memoryview, now_ms: int, origin: Origin, version: int
    ) -> tuple[memoryview, int, int, BatchHeader | None, int]:
        """The batch as the topic wants it, with what `plain_header` tells of others, and its append time if that is the
        topic's timestamp type. KafkaError says what is wrong with it."""
        validated = validate_append(records, self.config, now_ms, origin=origin, version=version, log=self.name)
        view, header = validated.view, validated.header
        if header.length > self._segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"Message batch size is {header.length} bytes in append to partition {self.name}, which exceeds the "
                f"maximum configured segment size of {self._segment_bytes}.",
            )
        by_producer = header if header.producer_id >= 0 else None
        return view, header.last_offset_delta, header.max_timestamp, by_producer, validated.log_append_time_ms

    def _keep_books(
        self,
        segment: Segment,
        position: int,
        size: int,
        last_offset: int,
        max_timestamp: int,
        header: BatchHeader | None,
        marker: Marker | None,
    ) -> None:
        """The log's end and indexes follow a batch that is written, and its producer if it came with a `header`."""
        if self.log_end_offset < self._recent_start:
            self._recent_start = self.log_end_offset
        self.log_end_offset = log_end_offset = last_offset + 1
        segment.size = end = position + size
        recent = self._recent_offsets
        recent.append(last_offset)
        self._recent_positions.append(position)
        if len(recent) > RECENT_MAX:
            self._forget_recent()
        if max_timestamp > segment.max_timestamp_known:
            segment.max_timestamp_known = max_timestamp
            segment.max_timestamp_offset_known = last_offset
        try:
            since_index = segment.bytes_since_index
            if since_index > self._index_interval_bytes:
                timestamp = (segment.max_timestamp, segment.max_timestamp_offset)
                self._index(segment, last_offset, position, timestamp, end)
                segment.bytes_since_index = size
            else:
                segment.bytes_since_index = since_index + size
            if header is not None:
                replay(self.producers, header, marker, segment.txn_index)
        except OSError as error:
            raise self._books_failed(error) from error
        if log_end_offset - self.recovery_point >= self._flush_messages:
            self.environment.request_flush(self)

    def append_as_follower(
        self, records: memoryview, leader_epoch: int, now_ms: int | None = None
    ) -> AppendInfo | None:
        """Writes batches as the leader sent them. A torn batch at the end, and batches of a later leader epoch, are
        left out; None when nothing was left."""
        if self.offline:
            raise self._storage_error()
        now = self.environment.clock.now_ms() if now_ms is None else now_ms
        return self._append_given(records, leader_epoch, Origin.REPLICATION, now)

    def _append_given(self, records: memoryview, leader_epoch: int, origin: Origin, now_ms: int) -> AppendInfo | None:
        follower = origin is not _RAFT_LEADER
        batches = validate_given(
            records,
            leader_epoch=leader_epoch,
            origin=origin,
            config=None if follower else self.config,
            log=self.name,
        )
        if not batches:
            return None
        first = batches[0][1].base_offset
        if first < self.log_end_offset:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"Unexpected offset in append to {self.name}. First offset {first} is less than the next offset "
                f"{self.log_end_offset}.",
            )
        # A response may hold more than a segment takes: it is written in runs that fit.
        start = 0
        while start < len(batches):
            stop, run_bytes = start, 0
            room = self._segment_bytes
            while stop < len(batches) and (stop == start or run_bytes + batches[stop][1].length <= room):
                run_bytes += batches[stop][1].length
                stop += 1
            self._append_run(records, batches[start:stop], run_bytes, origin, now_ms)
            start = stop
        if self.log_end_offset - self.recovery_point >= self._flush_messages:
            self.environment.request_flush(self)
        return AppendInfo(first, batches[-1][1].last_offset, -1, self.log_start_offset)

    def _append_run(
        self, records: memoryview, batches: list[tuple[int, BatchHeader]], size: int, origin: Origin, now_ms: int
    ) -> None:
        start, first = batches[0]
        max_timestamp = first.max_timestamp
        for _, header in batches:
            if header.max_timestamp > max_timestamp:
                max_timestamp = header.max_timestamp
        segment = self.active
        position = segment.size
        last_offset = batches[-1][1].last_offset
        if (
            position + size > self._segment_bytes
            or max_timestamp > self._roll_timestamp
            or now_ms > self._roll_now_ms
            or last_offset > self._last_offset_max
        ):
            segment = self._roll_if_due(size, first.base_offset, last_offset, max_timestamp, now_ms)
            position = segment.size
        try:
            segment.file.pwrite(records[start : start + size], position)
        except OSError as error:
            raise self._undo_write(segment, error) from error
        # The bytes are the leader's, and the books follow them.
        indexed = False
        try:
            for at, header in batches:
                last_offset = header.last_offset
                if header.partition_leader_epoch >= 0 and header.partition_leader_epoch != self._epoch:
                    self._assign_epoch(header.partition_leader_epoch, header.base_offset)
                if not self._recent_offsets:
                    self._recent_start = self.log_end_offset
                self._recent_offsets.append(last_offset)
                self._recent_positions.append(position)
                if segment.note_batch(
                    position, header.length, last_offset, header.max_timestamp, self._index_interval_bytes
                ):
                    indexed = True
                position += header.length
                segment.size = position
                self.log_end_offset = last_offset + 1
                if header.producer_id >= 0:
                    marker = read_marker(records, header, at) if header.attributes & CONTROL_FLAG else None
                    replay(self.producers, header, marker, segment.txn_index)
        except OSError as error:
            raise self._books_failed(error) from error
        if len(self._recent_offsets) > RECENT_MAX:
            self._forget_recent()
        if indexed and segment.indexes_full:
            self._forget_roll_bounds()
        self._start_writeback(segment, position)

    # -- the rarer part of an append

    def _roll_if_due(self, size: int, offset: int, last_offset: int, max_timestamp: int, now_ms: int) -> Segment:
        """The segment to append to; the bounds up to which the next append need not ask are set anew."""
        try:
            segment = rolling.roll_if_due(self, size, offset, last_offset, max_timestamp, now_ms)
        except OSError as error:
            raise self._undo_write(self.active, error) from error
        if segment.size == 0:
            segment.starts_with(max_timestamp)
        segment.load_max_timestamp()
        self._roll_timestamp, self._roll_now_ms = segment.roll_deadline(self.config.roll_ms)
        self._last_offset_max = segment.base_offset + RELATIVE_OFFSET_MAX
        return segment

    def roll(self) -> Segment:
        """Starts a new segment at the log end, whatever the size of the active one."""
        return rolling.roll(self, self.log_end_offset)

    def _undo_write(self, segment: Segment, error: OSError) -> KafkaError:
        """Cuts the file back to the last batch boundary. A full disk stays an error of this write only; anything else,
        or a failing cut, takes the directory offline."""
        environment = self.environment
        try:
            if segment.file.fd >= 0:
                segment.file.truncate(segment.size)
        except OSError as second:
            environment.failed(self, "truncating after a failed write", second)
            return self._storage_error()
        if error.errno in DISK_FULL_ERRORS:
            self._disk_full = True
            environment.disk_full(self, error)
            return DiskFull(self.directory)
        environment.failed(self, "appending", error)
        return self._storage_error()

    def _books_failed(self, error: OSError) -> KafkaError:
        """The batch is written and an index is not. Indexes shrug off a full disk, so this is a failing one."""
        self.environment.failed(self, "writing an index", error)
        return self._storage_error()

    def _index(self, segment: Segment, last_offset: int, position: int, timestamp: Sequence[int], end: int) -> None:
        segment.offset_index.append(last_offset, position)
        segment.time_index.maybe_append(*timestamp)
        if segment.indexes_full:
            self._forget_roll_bounds()
        self._start_writeback(segment, end)
        if self._disk_full:
            self._disk_full = False
            self.environment.disk_has_room(self)

    def _start_writeback(self, segment: Segment, end: int) -> None:
        if end - segment.writeback_position >= _WRITEBACK_BYTES:
            self.environment.start_writeback(segment.file, segment.writeback_position, end - segment.writeback_position)
            segment.writeback_position = end

    def _forget_recent(self) -> None:
        keep = RECENT_MAX // 2
        gone = len(self._recent_offsets) - keep
        self._recent_start = self._recent_offsets[gone - 1] + 1
        del self._recent_offsets[:gone]
        del self._recent_positions[:gone]

    def _assign_epoch(self, leader_epoch: int, offset: int) -> None:
        if leader_epoch >= 0:
            self.epochs.assign(leader_epoch, offset)
        self._epoch = leader_epoch
