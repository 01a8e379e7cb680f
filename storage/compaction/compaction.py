"""Compaction of one log: of every key only the latest record stays. Reads closed segments, writes `.cleaned` ones.

The work of a compaction worker; it renames and deletes nothing, and decides nothing about the log it was given.

1. The offset map is built from the dirty segments, from the first dirty offset up to the first uncleanable one, or
   until the map is full: then the rest waits for the next round.
2. Segments from the start of the log up to the end of the map are grouped so that what remains of a group surely fits
   in one segment, and each group is copied into one `.cleaned` segment, batch by batch:
   - a record stays if the map knows no later offset for its key; records behind the map stay; those without key go;
   - a tombstone (null value) that stays gives its batch a delete horizon, now + `delete.retention.ms`, in place of the
     base timestamp; once that time has come it goes too, so that a consumer has that long to see it;
   - batches of aborted transactions go; their marker, and that of a committed transaction of which nothing is left,
     get a delete horizon and go after it; the aborted transactions that remain make up the new `.txnindex`;
   - an emptied batch leaves its header behind if it is the last one of a live producer (its sequence and epoch must
     survive) or the last of the round (the log end must survive).
   Offsets never change: a rewritten batch keeps its base offset and last offset delta.

The caller swaps each group in before it asks for the next one, so at most one segment's worth of disk is needed on top.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pylogd.protocol import batch
from pylogd.protocol import compression as codecs
from pylogd.protocol.batch import BatchHeader
from pylogd.protocol.control import ControlType, control_type
from pylogd.protocol.records import RawRecord, append_moved, walk
from pylogd.storage.compaction.compaction_job import CleanedGroup, CompactionJob, CompactionStats, Source
from pylogd.storage.compaction.offset_map import OffsetMap
from pylogd.storage.environment import StorageEnvironment
from pylogd.storage.segments.scan import scan_batches
from pylogd.storage.segments.segment import CLEANED_SUFFIX, RELATIVE_OFFSET_MAX, Segment
from pylogd.storage.segments.txnindex import AbortedTxn, TransactionIndex

_WRITE_BYTES = 1 << 20


def compact(
    environment: StorageEnvironment, job: CompactionJob, spent: Callable[[int], None]
) -> Iterator[CleanedGroup]:
    """Yields a group whenever its segment is complete. `spent` hears of every read and write: it may sleep to hold a
    rate, and stops the work by raising; unfinished files are removed then, and also when the iterator is closed
    early."""
    return _Compaction(environment, job, spent).run()


def group_sources(
    sources: list[Source], segment_bytes: int, index_bytes: int, first_uncleanable_offset: int
) -> list[list[Source]]:
    """Neighbours whose logs and indexes together fit into one segment, and whose offsets fit into relative ones."""
    groups: list[list[Source]] = []
    size = offsets = times = 0
    for n, source in enumerate(sources):
        following = sources[n + 1].base_offset if n + 1 < len(sources) else first_uncleanable_offset
        group = groups[-1] if groups else None
        if (
            group is not None
            and size + source.size <= segment_bytes
            and offsets + source.offset_index_bytes <= index_bytes
            and times + source.time_index_bytes <= index_bytes
            and (source.size == 0 or following - 1 - group[0].base_offset <= RELATIVE_OFFSET_MAX)
        ):
            group.append(source)
            size += source.size
            offsets += source.offset_index_bytes
            times += source.time_index_bytes
        else:
            groups.append([source])
            size, offsets, times = source.size, source.offset_index_bytes, source.time_index_bytes
    return groups


class _Transactions:
    """Follows transactions through the batches in log order: which are aborted, and whose marker may go."""

    def __init__(self, aborted: list[AbortedTxn]) -> None:
        self._coming = sorted(aborted, key=lambda txn: txn.first_offset, reverse=True)
        self._aborted: dict[int, AbortedTxn] = {}
        self._seen: set[int] = set()
        self._committed: set[int] = set()
        #: Where aborted transactions of which something was seen are noted when their marker comes.
        self.index: TransactionIndex | None = None

    def _advance(self, offset: int) -> None:
        while self._coming and self._coming[-1].first_offset <= offset:
            txn = self._coming.pop()
            if txn.producer_id not in self._aborted:
                self._aborted[txn.producer_id] = txn

    def is_aborted(self, header: BatchHeader) -> bool:
        """A data batch passes by; may it go because its transaction was aborted?"""
        self._advance(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._seen.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def marker_may_go(self, header: BatchHeader, view: memoryview) -> bool:
        """A control batch passes by; true when nothing of its transaction was seen before it."""
        self._advance(header.last_offset)
        for record in batch.batch_records(view, header):
            kind = control_type(record.key)
            producer_id = header.producer_id
            if kind == ControlType.ABORT:
                txn = self._aborted.pop(producer_id, None)
                if txn is None or producer_id not in self._seen:
                    return True
                self._seen.discard(producer_id)
                if self.index is not None:
                    self.index.append(txn)
                return False
            if kind == ControlType.COMMIT:
                if producer_id in self._committed:
                    self._committed.discard(producer_id)
                    return False
                return True
            return False
        return True  # emptied before


class _Compaction:
    def __init__(self, environment: StorageEnvironment, job: CompactionJob, spent: Callable[[int], None]) -> None:
        self._environment = environment
        self._files = environment.files
        self._job = job
        self._spent = spent
        self._map = OffsetMap(job.map_bytes)
        self._stats = CompactionStats()
        self._transactions = _Transactions(job.aborted)

    def run(self) -> Iterator[CleanedGroup]:
        job = self._job
        self._build_map()
        end_offset = self._map.latest_offset + 1
        sources = [source for source in job.sources if source.base_offset < end_offset]
        config = job.config
        for group in group_sources(
            sources, config.segment_bytes, config.segment_index_bytes, job.first_uncleanable_offset
        ):
            yield self._clean_group(group, end_offset)

    # -- the map

    def _build_map(self) -> None:
        job, offsets = self._job, self._map
        start, end = job.first_dirty_offset, job.first_uncleanable_offset
        transactions = _Transactions(
            [txn for txn in job.aborted if txn.last_offset >= start and txn.first_offset < end]
        )
        bounds = [source.base_offset for source in job.sources[1:]] + [end]
        for source, bound in zip(job.sources, bounds):
            if bound <= start:
                continue
            if self._map_segment(source, start, transactions):
                return
            # An offset gap at the end of a segment is cleaned too.
            offsets.latest_offset = bound - 1

    def _map_segment(self, source: Source, start: int, transactions: _Transactions) -> bool:
        """True when the map became full on the way."""
        file = self._files.file(self._path(source), readonly=True)
        try:
            for _, header, view in scan_batches(file, self._position(source, start), source.size):
                self._spent(header.length)
                self._stats.map_bytes_read += header.length
                if header.is_control:
                    transactions.marker_may_go(header, view)
                elif not transactions.is_aborted(header) and self._map_batch(header, view, start):
                    return True
                if header.last_offset >= start:
                    self._map.latest_offset = header.last_offset
        finally:
            file.close()
        return False

    def _map_batch(self, header: BatchHeader, view: memoryview, start: int) -> bool:
        """True when the map became full on the way."""
        offsets = self._map
        entries_max = int(offsets.slots * self._job.load_factor)
        payload = batch.payload(view, header)
        for raw in walk(payload, header.record_count):
            offset = header.base_offset + raw.offset_delta
            if raw.key_size < 0 or offset < start:
                continue
            if offsets.entries >= entries_max:
                return True
            offsets.put(payload[raw.key_pos : raw.key_pos + raw.key_size], offset)
            self._stats.map_entries = offsets.entries
        return False

    def _path(self, source: Source) -> str:
        return f"{self._job.directory}/{source.base_offset:020d}.log"

    def _position(self, source: Source, start: int) -> int:
        """Where in a segment to start reading for `start`."""
        if start <= source.base_offset or not source.offset_index_bytes:
            return 0
        segment = Segment(
            self._environment, self._job.directory, source.base_offset, self._job.config, new=False, size=source.size
        )
        try:
            return segment.offset_index.lookup(start)
        finally:
            segment.drop()

    # -- the copy

    def _clean_group(self, group: list[Source], end_offset: int) -> CleanedGroup:
        base_offset = group[0].base_offset
        cleaned = Segment(self._environment, self._job.directory, base_offset, self._job.config, suffix=CLEANED_SUFFIX)
        try:
            cleaned.create()
            self._transactions.index = cleaned.txn_index
            for source in group:
                self._clean_into(source, cleaned)
            cleaned.become_inactive()
            cleaned.sync(indexes=True)
            cleaned.close()
            self._files.set_modified_ms(cleaned.file.path, group[-1].modified_ms)
        except BaseException:
            cleaned.drop()
            for path in cleaned.paths():
                self._files.unlink(path)
            raise
        return CleanedGroup(
            base_offset,
            cleaned.size,
            group[-1].modified_ms,
            [source.base_offset for source in group],
            end_offset,
            self._stats,
        )

    def _clean_into(self, source: Source, cleaned: Segment) -> None:
        stats = self._stats
        interval_bytes = self._job.config.index_interval_bytes
        file = self._files.file(self._path(source), readonly=True)
        pending = bytearray()
        pending_position = cleaned.size
        try:
            for _, header, view in scan_batches(file, 0, source.size):
                self._spent(header.length)
                stats.bytes_read += header.length
                stats.records_read += header.record_count
                kept = self._filter(header, view)
                if kept is None:
                    continue
                kept_header = header if kept is view else batch.parse_header(kept)
                stats.records_written += kept_header.record_count
                cleaned.note_batch(
                    cleaned.size,
                    kept_header.length,
                    kept_header.last_offset,
                    kept_header.max_timestamp,
                    interval_bytes,
                )
                cleaned.size += kept_header.length
                pending += kept
                if len(pending) >= _WRITE_BYTES:
                    pending_position = self._write(cleaned, pending, pending_position)
            self._write(cleaned, pending, pending_position)
        finally:
            file.close()

    def _write(self, cleaned: Segment, pending: bytearray, position: int) -> int:
        if pending:
            cleaned.file.pwrite(pending, position)
            self._spent(len(pending))
            self._stats.bytes_written += len(pending)
            position += len(pending)
            pending.clear()
        return position

    def _filter(self, header: BatchHeader, view: memoryview) -> memoryview | bytearray | None:
        """What stays of a batch: itself, a smaller one, an empty one, or nothing."""
        job = self._job
        horizon_ms = header.delete_horizon_ms
        if header.is_control:
            may_go = self._transactions.marker_may_go(header, view)
            discard = may_go and horizon_ms is not None and horizon_ms <= job.now_ms
        else:
            may_go = discard = self._transactions.is_aborted(header)
        must_stay = self._is_last_of_producer(header) or header.next_offset == job.first_uncleanable_offset
        if discard:
            return _emptied(header) if must_stay else None
        payload = batch.payload(view, header) if header.record_count else b""
        raws = list(walk(payload, header.record_count)) if header.record_count else []
        kept = raws if header.is_control else [raw for raw in raws if self._stays(header, payload, raw)]
        if not kept:
            return _emptied(header) if must_stay else None
        set_horizon = horizon_ms is None and (any(raw.value_size < 0 for raw in kept) or (may_go and header.is_control))
        if len(kept) == len(raws) and not set_horizon:
            return view
        return _rewritten(
            header, payload, kept, job.now_ms + job.config.delete_retention_ms if set_horizon else horizon_ms
        )

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self._job.producers.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        if last.last_data_offset >= 0:
            return header.last_offset == last.last_data_offset
        return header.is_control and header.producer_epoch == last.producer_epoch

    def _stays(self, header: BatchHeader, payload: bytes, raw: RawRecord) -> bool:
        offset = header.base_offset + raw.offset_delta
        if offset > self._map.latest_offset:
            return True
        if raw.key_size < 0:
            return False
        if offset < self._map.get(payload[raw.key_pos : raw.key_pos + raw.key_size]):
            return False
        horizon_ms = header.delete_horizon_ms
        return raw.value_size >= 0 or horizon_ms is None or self._job.now_ms < horizon_ms


def _emptied(header: BatchHeader) -> bytearray:
    """A header without records that still says which offsets and sequences its producer used."""
    keep = batch.TIMESTAMP_TYPE_FLAG | batch.TRANSACTIONAL_FLAG | batch.CONTROL_FLAG
    return batch.assemble(
        b"",
        base_offset=header.base_offset,
        leader_epoch=header.partition_leader_epoch,
        attributes=header.attributes & keep,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=batch.NO_TIMESTAMP,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        record_count=0,
    )


def _rewritten(header: BatchHeader, payload: bytes, kept: list[RawRecord], horizon_ms: int | None) -> bytearray:
    """The batch with only these records, and with this delete horizon."""
    flagged = header.timestamp_type == batch.LOG_APPEND_TIME
    timestamps = [header.max_timestamp if flagged else header.base_timestamp + raw.timestamp_delta for raw in kept]
    base_timestamp = timestamps[0] if horizon_ms is None else horizon_ms
    body = bytearray()
    for raw, timestamp in zip(kept, timestamps):
        append_moved(body, payload, raw, timestamp - base_timestamp)
    attributes = header.attributes & ~batch.DELETE_HORIZON_FLAG
    if horizon_ms is not None:
        attributes |= batch.DELETE_HORIZON_FLAG
    return batch.assemble(
        codecs.compress(header.compression, body),
        base_offset=header.base_offset,
        leader_epoch=header.partition_leader_epoch,
        attributes=attributes,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max(timestamps),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        record_count=len(kept),
    )
