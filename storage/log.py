"""A partition's log: segments in order, the append and the read path, and the offsets everybody asks for.

One owner: everything here runs on the thread of the event loop, except where a docstring says "worker". Appending and
reading at the tail are the hot paths: a header is parsed once, the bytes are written where they lie, and a read of
recent batches is answered from memory.

What is elsewhere: `loading` opens and recovers a log, `rolling` starts segments, `truncation` cuts the end, `retention`
the beginning, `lookup` finds offsets by time, `swap` replaces segments after compaction, `flushing` makes bytes
durable."""

from __future__ import annotations

import errno
import logging
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING

from crc32c import crc32c
from pylogd.protocol.batch import CONTROL_FLAG, BatchHeader, parse_header
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.runtime.files import FileRange
from pylogd.storage import lookup, partition_metadata, retention, rolling, swap, truncation
from pylogd.storage.checkpoint import LEADER_EPOCHS
from pylogd.storage.config import INT64_MAX, LogConfig
from pylogd.storage.producers import ProducerStates, read_marker
from pylogd.storage.replay import replay
from pylogd.storage.segment import RELATIVE_OFFSET_MAX, Segment
from pylogd.storage.segments import Segments
from pylogd.storage.validation import Origin, validate_append, validate_given

if TYPE_CHECKING:
    from pylogd.storage.environment import LogEnvironment
    from pylogd.storage.epochs import EpochCache
    from pylogd.storage.txnindex import AbortedTxn

logger = logging.getLogger(__name__)

_unpack_header = Struct(">qiibIhiqqqhii").unpack_from
_stamp = Struct(">qii").pack_into
_CLIENT = Origin.CLIENT
_RAFT_LEADER = Origin.RAFT_LEADER

#: Attributes of a batch that needs no look beyond its header: any codec, transactional or not.
_PLAIN_ATTRIBUTES = frozenset(codec | transactional for codec in range(5) for transactional in (0, 0x10))

#: Batches at the end of the active segment whose positions are kept in memory; half of them go when the list is full.
_RECENT_MAX = 512
#: Dirty bytes at which write-back of the active segment is started.
_WRITEBACK_BYTES = 8 << 20

DISK_FULL_ERRORS = frozenset((errno.ENOSPC, errno.EDQUOT))


class AppendInfo:
    """Where a batch went. `duplicate`: it was there already, and these are the offsets of the original."""

    __slots__ = ("base_offset", "duplicate", "last_offset", "log_append_time_ms", "log_start_offset")

    def __init__(
        self,
        base_offset: int,
        last_offset: int,
        log_append_time_ms: int,
        log_start_offset: int,
        duplicate: bool = False,
    ) -> None:
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.duplicate = duplicate

    def __repr__(self) -> str:
        return f"AppendInfo({self.base_offset}..{self.last_offset}, duplicate={self.duplicate})"


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


class Log:
    """Use `loading.open_log` to get one."""

    __slots__ = (
        "_after_max_ms",
        "_disk_full",
        "_epoch",
        "_flush_messages",
        "_index_interval_bytes",
        "_last_offset_max",
        "_plain",
        "_pwrite",
        "_recent_offsets",
        "_recent_positions",
        "_recent_start",
        "_roll_now_ms",
        "_roll_timestamp",
        "_segment_bytes",
        "_size_max",
        "_unsynced_closed",
        "_unsynced_snapshots",
        "active",
        "closed",
        "config",
        "directory",
        "entry_synced",
        "environment",
        "epochs",
        "generation",
        "high_watermark",
        "last_flush_ms",
        "log_end_offset",
        "log_start_offset",
        "metadata_written",
        "name",
        "offline",
        "on_flushed",
        "partition",
        "producers",
        "recovery_point",
        "segments",
        "topic",
        "topic_id",
        "truncations",
    )

    def __init__(
        self,
        environment: LogEnvironment,
        directory: str,
        topic: str,
        partition: int,
        config: LogConfig,
        segments: Segments,
        epochs: EpochCache,
        producers: ProducerStates,
        *,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        topic_id: bytes | None,
    ) -> None:
        self.environment = environment
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.name = f"{topic}-{partition}"
        self.topic_id = topic_id
        self.segments = segments
        self.active: Segment = segments.last
        self.epochs = epochs
        self.producers = producers
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.recovery_point = recovery_point
        self.high_watermark = log_start_offset
        self.last_flush_ms = environment.clock.now_ms()
        #: Bumped by truncation, deletion and a moved start: results computed elsewhere from older segments are void.
        self.generation = 0
        #: A flush that began before a truncation says nothing about the log after it.
        self.truncations = 0
        self.offline = False
        self.closed = False
        #: Told on the loop's thread after the flushed offset moved; with `flush.messages=1` acknowledgements wait for
        #: it.
        self.on_flushed: Callable[[Log], None] | None = None
        #: False while the partition's own directory entry may be lost by a crash.
        self.entry_synced = False
        #: False while `partition.metadata` still has to be written, off the event loop.
        self.metadata_written = True
        self._disk_full = False
        self._unsynced_closed: list[Segment] = []
        self._unsynced_snapshots: list[str] = []
        self._pwrite = environment.files.pwrite
        self._epoch: int | None = None
        self._recent_offsets: array[int] = array("q")
        self._recent_positions: array[int] = array("q")
        self._recent_start = INT64_MAX
        self.update_config(config)

    def update_config(self, config: LogConfig) -> None:
        """Takes effect with the next append or check; open segments keep the index size and jitter they were made
        with."""
        self.config = config
        self._plain = (
            config.compression_type == "producer"
            and not config.log_append_time
            and not config.compact
            and config.message_timestamp_before_max_ms == INT64_MAX
            and config.pylogd_record_validation != "full"
        )
        self._size_max = min(config.max_message_bytes, config.segment_bytes)
        self._segment_bytes = config.segment_bytes
        self._after_max_ms = config.message_timestamp_after_max_ms
        self._index_interval_bytes = config.index_interval_bytes
        self._flush_messages = config.flush_messages
        self._forget_roll_bounds()

    def _forget_roll_bounds(self) -> None:
        """The next append looks closely whether it must roll, and finds the bounds up to which others need not."""
        self._roll_timestamp = -INT64_MAX
        self._roll_now_ms = -1
        self._last_offset_max = self.active.base_offset + RELATIVE_OFFSET_MAX

    # -- appending

    def append_as_leader(
        self,
        records: memoryview,
        leader_epoch: int,
        *,
        now_ms: int,
        origin: Origin = _CLIENT,
        version: int = 13,
        transaction_version: int = 0,
    ) -> AppendInfo:
        """Checks one batch, gives it its offset and leader epoch in place, and writes it. KafkaError when it is
        refused; then nothing has changed. A Raft leader's batches come with offset and epoch."""
        if self.offline:
            raise self._storage_error()
        if origin is _RAFT_LEADER:
            given = self._append_given(records, leader_epoch, origin, now_ms)
            if given is None:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"No whole batch in an append to {self.name}.")
            return given
        size = len(records)
        append_time_ms = -1
        try:
            (
                base_offset,
                length,
                _,
                magic,
                crc,
                attributes,
                last_offset_delta,
                _,
                max_timestamp,
                producer_id,
                _,
                base_sequence,
                count,
            ) = _unpack_header(records, 0)
        except StructError:
            magic = length = -1
        if not (
            length + 12 == size
            and magic == 2
            and self._plain
            and origin is _CLIENT
            and base_offset == 0
            and count == last_offset_delta + 1
            and count > 0
            and attributes in _PLAIN_ATTRIBUTES
            and size <= self._size_max
            and max_timestamp <= now_ms + self._after_max_ms
            and (producer_id < 0 or base_sequence >= 0)
            and version > 6
            and crc == crc32c(records[21:])
        ):
            validated = validate_append(records, self.config, now_ms, origin=origin, version=version, log=self.name)
            records, header = validated.view, validated.header
            append_time_ms = validated.log_append_time_ms
            size = header.length
            length = size - 12
            last_offset_delta = header.last_offset_delta
            max_timestamp = header.max_timestamp
            producer_id = header.producer_id
            if size > self._segment_bytes:
                raise KafkaError(
                    ErrorCode.RECORD_LIST_TOO_LARGE,
                    f"Message batch size is {size} bytes in append to partition {self.name}, which exceeds the maximum "
                    f"configured segment size of {self._segment_bytes}.",
                )

        offset = self.log_end_offset
        last_offset = offset + last_offset_delta
        marker = None
        if producer_id >= 0:
            header = parse_header(records)
            header.base_offset = offset
            if header.attributes & CONTROL_FLAG:
                marker = read_marker(records, header)
            original = self.producers.check(header, offset, origin, marker, transaction_version)
            if original is not None:
                return AppendInfo(
                    original.first_offset, original.last_offset, original.timestamp, self.log_start_offset, True
                )

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

        _stamp(records, 0, offset, length, leader_epoch)
        file = segment.file
        try:
            written = self._pwrite(file.fd if file.fd >= 0 else file.open(), records, position)
            if written != size:
                file.pwrite(records[written:], position + written)
        except OSError as error:
            raise self._undo_write(segment, error) from error
        file.used = True
        end = segment.size = position + size
        self.log_end_offset = last_offset + 1
        recent = self._recent_offsets
        if not recent:
            self._recent_start = offset
        recent.append(last_offset)
        self._recent_positions.append(position)
        if len(recent) > _RECENT_MAX:
            self._forget_recent()
        if max_timestamp > segment.max_timestamp_known:
            segment.max_timestamp_known = max_timestamp
            segment.max_timestamp_offset_known = last_offset
        since_index = segment.bytes_since_index
        if since_index > self._index_interval_bytes:
            self._index(segment, last_offset, position, size, end)
        else:
            segment.bytes_since_index = since_index + size
        if producer_id >= 0:
            replay(self.producers, header, marker, segment.txn_index)
        if last_offset + 1 - self.recovery_point >= self._flush_messages:
            self.environment.request_flush(self)
        return AppendInfo(offset, last_offset, append_time_ms, self.log_start_offset)

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
        first, last = batches[0][1], batches[-1][1]
        max_timestamp = max(header.max_timestamp for _, header in batches)
        segment = self._roll_if_due(size, first.base_offset, last.last_offset, max_timestamp, now_ms)
        start = batches[0][0]
        position = segment.size
        try:
            segment.file.pwrite(records[start : start + size], position)
        except OSError as error:
            raise self._undo_write(segment, error) from error
        # From here on nothing fails: the bytes are the leader's, and the books follow them.
        for at, header in batches:
            last_offset = header.last_offset
            if header.partition_leader_epoch >= 0 and header.partition_leader_epoch != self._epoch:
                self._assign_epoch(header.partition_leader_epoch, header.base_offset)
            if not self._recent_offsets:
                self._recent_start = self.log_end_offset
            self._recent_offsets.append(last_offset)
            self._recent_positions.append(position)
            segment.note_batch(position, header.length, last_offset, header.max_timestamp, self._index_interval_bytes)
            position += header.length
            segment.size = position
            self.log_end_offset = last_offset + 1
            if header.producer_id >= 0:
                marker = read_marker(records, header, at) if header.attributes & CONTROL_FLAG else None
                replay(self.producers, header, marker, segment.txn_index)
        if len(self._recent_offsets) > _RECENT_MAX:
            self._forget_recent()
        if segment.indexes_full:
            self._forget_roll_bounds()
        self._start_writeback(segment, position)

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
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The disk of {self.directory} is full.")
        environment.failed(self, "appending", error)
        return self._storage_error()

    @contextmanager
    def guarded(self, action: str) -> Iterator[None]:
        """For changes other than appends: an I/O error becomes KAFKA_STORAGE_ERROR and takes the directory offline,
        unless the disk is just full."""
        if self.offline:
            raise self._storage_error()
        try:
            yield
        except OSError as error:
            if error.errno in DISK_FULL_ERRORS:
                self._disk_full = True
                self.environment.disk_full(self, error)
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The disk of {self.directory} is full.") from error
            self.environment.failed(self, action, error)
            raise self._storage_error() from error

    def _storage_error(self) -> KafkaError:
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The log directory of {self.name} is offline.")

    def _index(self, segment: Segment, last_offset: int, position: int, size: int, end: int) -> None:
        segment.offset_index.append(last_offset, position)
        segment.time_index.maybe_append(segment.max_timestamp, segment.max_timestamp_offset)
        segment.bytes_since_index = size
        if segment.indexes_full:
            self._forget_roll_bounds()
        self._start_writeback(segment, end)
        if self._disk_full:
            self._disk_full = False
            self.environment.disk_has_room(self)

    def _start_writeback(self, segment: Segment, end: int) -> None:
        if end - segment.writeback_position >= _WRITEBACK_BYTES:
            self.environment.start_writeback(self, segment.writeback_position, end - segment.writeback_position)
            segment.writeback_position = end

    def _forget_recent(self) -> None:
        keep = _RECENT_MAX // 2
        gone = len(self._recent_offsets) - keep
        self._recent_start = self._recent_offsets[gone - 1] + 1
        del self._recent_offsets[:gone]
        del self._recent_positions[:gone]

    def activate(self, segment: Segment) -> None:
        """Makes `segment` the one that is appended to; what is remembered of the active segment no longer holds."""
        self.active = segment
        del self._recent_offsets[:]
        del self._recent_positions[:]
        self._recent_start = INT64_MAX
        self._forget_roll_bounds()

    def _assign_epoch(self, leader_epoch: int, offset: int) -> None:
        if leader_epoch >= 0:
            self.epochs.assign(leader_epoch, offset)
        self._epoch = leader_epoch

    def forget_epoch(self) -> None:
        self._epoch = None

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

    # -- producers and transactions

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

    # -- reading

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
                size = segment.offset_index.floor_position(start + max_bytes) - start
                if size <= 0:
                    # No indexed boundary on the way: the last batch may be cut, as a Kafka broker would cut it.
                    size = max_bytes
                    if first_size > max_bytes:
                        if not at_least_one:
                            return LogRead(None, 0, first_size, segment.base_offset, False)
                        size = first_size
            return LogRead(FileRange(segment.file, start, size), size, first_size, segment.base_offset, False)
        return LogRead(None, 0, 0, self.active.base_offset, False)

    def offset_for_timestamp(self, timestamp: int, nowait: bool = False) -> lookup.TimestampOffset | None:
        """The first record at or after `timestamp`, or what one of ListOffsets' special timestamps asks for. `nowait`
        as for `read`; a long search may be cold several times."""
        return lookup.offset_for_timestamp(self, timestamp, nowait)

    def offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch at or below the given one; (-1, -1) when unknown."""
        return self.epochs.end_offset_for(leader_epoch, self.log_end_offset)

    # -- size and age

    @property
    def size(self) -> int:
        return self.segments.size

    @property
    def flushed_offset(self) -> int:
        """Everything below is on stable storage."""
        return self.recovery_point

    @property
    def empty(self) -> bool:
        return self.log_start_offset == self.log_end_offset

    # -- the ends

    def truncate_to(self, offset: int) -> bool:
        """Removes everything at and above `offset`; False when there was nothing."""
        return truncation.truncate_to(self, offset)

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Empties the log; the next record gets `offset`."""
        truncation.truncate_fully_and_start_at(self, offset, log_start_offset)

    def delete_records_before(self, offset: int) -> int:
        """Moves the log start; the segments below go at the next retention check. Returns the log start offset."""
        retention.advance_log_start(self, offset)
        return self.log_start_offset

    def delete_old_segments(self, now_ms: int | None = None) -> int:
        """One retention check; returns how many segments went."""
        return retention.delete_old_segments(self, self.environment.clock.now_ms() if now_ms is None else now_ms)

    def replace_segments(self, new: list[Segment], old: list[Segment]) -> None:
        """Swaps compacted segments in."""
        swap.replace_segments(self, new, old)

    # -- durability

    def flush_plan(self, up_to: int | None = None) -> FlushPlan:
        """What a worker must sync so that everything below `up_to` (the log end) is durable."""
        end = self.log_end_offset if up_to is None else min(up_to, self.log_end_offset)
        start = self.recovery_point
        touched = self.segments.between(start, end) if end > start else []
        closed, self._unsynced_closed = self._unsynced_closed, []
        touched = [segment for segment in closed if segment not in touched] + touched
        return FlushPlan(self, touched, start, end)

    def flush(self, up_to: int | None = None) -> None:
        """Syncs in the caller: for tests, shutdown and logs without an event loop around them."""
        plan = self.flush_plan(up_to)
        if not plan.segments:
            return
        try:
            plan.run()
        except OSError as error:
            self.environment.failed(self, "fsync", error)
            raise self._storage_error() from error
        self.mark_flushed(plan)

    def take_unsynced_snapshots(self) -> list[str]:
        paths, self._unsynced_snapshots = self._unsynced_snapshots, []
        return paths

    def note_closed(self, segment: Segment) -> None:
        """A segment was closed; the next flush owes its indexes a sync, even if all its records are flushed already."""
        if segment not in self._unsynced_closed:
            self._unsynced_closed.append(segment)

    def note_snapshot(self, path: str | None) -> None:
        """A producer snapshot was written without a sync; the next flush owes it one."""
        if path is not None:
            self._unsynced_snapshots.append(path)

    def mark_flushed(self, plan: FlushPlan) -> None:
        """The worker is done. After a truncation meanwhile its offset may lie beyond the log, or above bytes it never
        saw."""
        self.last_flush_ms = self.environment.clock.now_ms()
        if plan.truncations == self.truncations and plan.end > self.recovery_point:
            self.recovery_point = plan.end
            if self.on_flushed is not None:
                self.on_flushed(self)

    # -- life

    def write_metadata(self) -> None:
        """Worker: `partition.metadata`, once."""
        if not self.metadata_written and self.topic_id is not None:
            self.metadata_written = True
            partition_metadata.write(self.environment.files, self.directory, self.topic_id)

    @property
    def dirty(self) -> bool:
        """True when closing writes anything."""
        return (
            self.log_end_offset > self.recovery_point
            or self.active.offset_index.in_memory
            or self.epochs.dirty
            or not self.metadata_written
        )

    def close(self, durable: bool = True) -> None:
        """Clean end, may run in a worker: indexes, epochs and producer state reach the disk. The caller has flushed
        before, or does not mind recovery; without `durable` it syncs the file system afterwards."""
        if self.closed:
            return
        self.closed = True
        if self.offline:
            self.close_handles()
            return
        self.write_metadata()
        self.producers.map_end_offset = self.log_end_offset
        self.producers.take_snapshot(durable)
        self.epochs.flush(durable)
        for segment in self.segments:
            segment.close()
        if durable and self.active.indexes_unsynced:
            # The active segment's indexes are on disk only now, and the next start will trust them.
            self.active.sync_indexes()
            self.environment.files.sync_dir(self.directory)

    def close_handles(self) -> None:
        """Gives descriptors back without writing: the directory failed, or the files are about to be deleted."""
        self.closed = True
        for segment in self.segments:
            segment.drop()

    def moved(self, directory: str) -> None:
        """The partition's directory was renamed."""
        self.directory = directory
        for segment in self.segments:
            segment.moved(directory)
        self.producers.moved(directory)
        self.epochs.moved(f"{directory}/{LEADER_EPOCHS}")

    def __repr__(self) -> str:
        return (
            f"Log({self.name}, [{self.log_start_offset}, {self.log_end_offset}), high_watermark={self.high_watermark})"
        )


class FlushPlan:
    """The part of a flush that blocks, cut loose from the log so that a worker thread can run it."""

    __slots__ = (
        "_active",
        "_epochs",
        "_files",
        "_log",
        "_snapshots",
        "directory",
        "end",
        "segments",
        "start",
        "truncations",
    )

    def __init__(self, log: Log, segments: list[Segment], start: int, end: int) -> None:
        self._files = log.environment.files
        self._epochs = log.epochs
        self._active = log.active
        self._snapshots = log.take_unsynced_snapshots()
        self.directory = log.directory
        self.segments = segments
        self.start = start
        self.end = end
        self.truncations = log.truncations
        self._log = log

    def run(self) -> None:
        """Worker. A segment that lies wholly below the new recovery point is never scanned again, so its indexes, the
        snapshot of the producers at its end and the epochs that start in it must be durable too; the active segment is
        always scanned after a crash. New files need their directory entry."""
        self._log.write_metadata()
        for path in self._snapshots:
            if self._files.exists(path):
                snapshot = self._files.file(path, readonly=True)
                snapshot.fsync()
                snapshot.close()
        for segment in self.segments:
            segment.sync(indexes=segment is not self._active)
        if self._epochs.dirty:
            self._epochs.flush()
        if self._snapshots or any(segment.base_offset >= self.start for segment in self.segments):
            self._files.sync_dir(self.directory)
        if not self._log.entry_synced:
            self._files.sync_dir(self.directory.rpartition("/")[0])
            self._log.entry_synced = True
