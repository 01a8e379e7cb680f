"""What a log remembers of its idempotent and transactional producers, and what it refuses because of it.

Per producer id: the epoch, the last five batches (a retry of one of them is a duplicate, answered with its old
offsets), the coordinator epoch of its last marker and the start of its open transaction. All of it is the replay of the
log, sped up by snapshots (`snapshot_files.py`); it changes only in `apply`, after the batch is in the log.

A transaction is *ongoing* from its first batch to its marker and *unreplicated* until the high watermark passes that
marker. The first unstable offset is the smallest start among both, and READ_COMMITTED consumers read below it.
"""

from __future__ import annotations

from pylogd.protocol import batch
from pylogd.protocol.batch import NO_PRODUCER_EPOCH, NO_SEQUENCE, SEQUENCE_MAX, BatchHeader
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.runtime.files import FileSystem
from pylogd.storage.producers.producer_entry import BatchMeta as BatchMeta
from pylogd.storage.producers.producer_entry import CompletedTxn as CompletedTxn
from pylogd.storage.producers.producer_entry import Marker as Marker
from pylogd.storage.producers.producer_entry import ProducerEntry as ProducerEntry
from pylogd.storage.producers.producer_entry import read_marker as read_marker
from pylogd.storage.producers.producer_snapshot import Row
from pylogd.storage.producers.snapshot_files import SnapshotFiles
from pylogd.storage.producers.verification_guard import UNVERIFIED, Guard, Verifications
from pylogd.storage.validation import Origin

BATCHES_MAX = 5
EPOCH_MAX = 0x7FFF
EXPIRATION_MS = 86_400_000

_TXN_FLAG = batch.TRANSACTIONAL_FLAG
_new_tuple = tuple.__new__


class ProducerStates:
    """The producers of one log. Everything applied lies below `map_end_offset`; it may lag behind the log end when the
    last batches had no producer id, and whoever replays or rolls the log moves it."""

    __slots__ = (
        "_loaded",
        "_snap_offset",
        "expiration_ms",
        "map_end_offset",
        "ongoing",
        "producers",
        "snapshots",
        "unreplicated",
        "verifications",
    )

    def __init__(
        self, files: FileSystem, directory: str, snapshots: list[int] | None = None, expiration_ms: int = EXPIRATION_MS
    ) -> None:
        """`snapshots` are the offsets of the snapshot files already there, if the caller has listed the directory."""
        self.expiration_ms = expiration_ms
        self.producers: dict[int, ProducerEntry] = {}
        # First offset -> producer id, in order of first offsets, because transactions begin at the end of the log.
        self.ongoing: dict[int, int] = {}
        # First offset -> offset of the marker that the high watermark has not passed.
        self.unreplicated: dict[int, int] = {}
        self.verifications = Verifications()
        self.map_end_offset = 0
        self._loaded = False
        self._snap_offset = 0
        self.snapshots = SnapshotFiles(files, directory, snapshots)

    # -- before the append

    def check(
        self,
        header: BatchHeader,
        offset: int,
        origin: Origin,
        marker: Marker | None = None,
        transaction_version: int = 0,
        guard: Guard | None = None,
    ) -> BatchMeta | None:
        """May this batch be appended at `offset`? The earlier batch when it is a retry of one, else None; KafkaError if
        not.

        Changes nothing. `marker` is that of a control batch, `transaction_version` the one of the coordinator that
        writes it. `guard` is what `start_verification` gave for a transactional batch; None when nobody asks for it."""
        entry = self.producers.get(header.producer_id)
        if guard is not None and header.attributes & _TXN_FLAG:
            original = self._check_verified(entry, header, offset, origin, guard)
            if original is not None:
                return original
        if entry is None:
            return None
        epoch = header.producer_epoch
        if marker is not None:
            self._check_marker(entry, epoch, offset, origin, marker, transaction_version)
            return None
        if origin == Origin.CLIENT and entry.producer_epoch == epoch:
            last_sequence = entry.batches[-1][0] if entry.batches else NO_SEQUENCE
            if header.base_sequence != (last_sequence + 1) & SEQUENCE_MAX:
                original = entry.find(header)
                if original is not None:
                    return original
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Out of order sequence number for producer {header.producer_id} at offset {offset}: "
                    f"{header.base_sequence} (incoming seq. number), {last_sequence} (current end sequence number)",
                )
        elif epoch < entry.producer_epoch:
            if origin != Origin.REPLICATION:
                raise _stale_epoch(entry, epoch, offset, "<")
        elif origin == Origin.CLIENT and header.base_sequence != 0 and entry.producer_epoch != NO_PRODUCER_EPOCH:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Invalid sequence number for new epoch of producer {header.producer_id} at offset {offset}: "
                f"{epoch} (request epoch), {header.base_sequence} (seq. number), "
                f"{entry.producer_epoch} (current producer epoch)",
            )
        if entry.txn_first_offset is not None and not header.attributes & _TXN_FLAG and origin != Origin.REPLICATION:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"Expected transactional write from producer {header.producer_id} at offset {offset}",
            )
        return None

    def _check_marker(
        self, entry: ProducerEntry, epoch: int, offset: int, origin: Origin, marker: Marker, transaction_version: int
    ) -> None:
        if origin == Origin.REPLICATION:
            return
        current = entry.producer_epoch
        # Since transaction version 2 the coordinator bumps the epoch before it ends a transaction, so a marker of the
        # current epoch is late, unless no transaction is open: then it is the retry of one already written.
        if transaction_version >= 2:
            retry = epoch == current and (entry.txn_first_offset is None or epoch == EPOCH_MAX)
            if epoch <= current and not retry:
                raise _stale_epoch(entry, epoch, offset, "<=")
        elif epoch < current:
            raise _stale_epoch(entry, epoch, offset, "<")
        if entry.coordinator_epoch > marker.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Invalid coordinator epoch for producerId {entry.producer_id} at offset {offset}: "
                f"{marker.coordinator_epoch} (zombie), {entry.coordinator_epoch} (current)",
            )

    def start_verification(
        self, producer_id: int, sequence: int, producer_epoch: int, epoch_bump: bool, now_ms: int
    ) -> Guard:
        """The guard under which the coordinator is to be asked about a transactional batch; UNVERIFIED when the
        transaction is open here already. INVALID_PRODUCER_EPOCH for a producer that was fenced."""
        entry = self.producers.get(producer_id)
        if entry is not None and producer_epoch < entry.producer_epoch:
            raise _fenced(entry, producer_epoch)
        if self.has_ongoing_transaction(producer_id, producer_epoch):
            return UNVERIFIED
        return self.verifications.start(producer_id, sequence, producer_epoch, epoch_bump, now_ms)

    def check_verified(self, producer_id: int, producer_epoch: int, guard: Guard) -> None:
        """May this producer write transactional records now?"""
        if not self.has_ongoing_transaction(producer_id, producer_epoch):
            entry = self.producers.get(producer_id)
            if entry is not None and producer_epoch < entry.producer_epoch:
                raise _fenced(entry, producer_epoch)
            self.verifications.check(producer_id, guard)

    def _check_verified(
        self, entry: ProducerEntry | None, header: BatchHeader, offset: int, origin: Origin, guard: Guard
    ) -> BatchMeta | None:
        if origin == Origin.CLIENT and entry is not None and entry.producer_epoch == header.producer_epoch:
            original = entry.find(header)
            if original is not None:
                return original
        self.check_verified(header.producer_id, header.producer_epoch, guard)
        if origin == Origin.CLIENT:
            self.verifications.check_sequence(header, offset, entry is not None and bool(entry.batches))
        return None

    def has_ongoing_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        entry = self.producers.get(producer_id)
        return entry is not None and entry.txn_first_offset is not None and entry.producer_epoch == producer_epoch

    # -- after the append, and on replay

    def apply(self, header: BatchHeader, marker: Marker | None = None) -> CompletedTxn | None:
        """A batch is in the log at its header's offsets. The transaction it ended, if any: pass it to `complete` after
        the abort is in the transaction index."""
        producer_id = header.producer_id
        if producer_id < 0:
            return None
        if self.verifications.guards and header.attributes & _TXN_FLAG:
            self.verifications.written(header)
        end = header.base_offset + header.last_offset_delta + 1
        if end > self.map_end_offset:
            self.map_end_offset = end
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerEntry(producer_id)
        if entry.producer_epoch != header.producer_epoch:
            entry.take_epoch(header.producer_epoch)
        if marker is not None:
            first_offset = entry.txn_first_offset
            entry.coordinator_epoch = marker.coordinator_epoch
            entry.last_timestamp = marker.timestamp
            entry.txn_first_offset = None
            if first_offset is None:
                return None
            return CompletedTxn(producer_id, first_offset, header.base_offset, not marker.commit)
        if header.attributes & batch.CONTROL_FLAG:
            # Compaction emptied this marker and kept it for its epoch, which fences older instances of the producer.
            entry.last_timestamp = header.max_timestamp
            return None
        delta = header.last_offset_delta
        base_sequence = header.base_sequence
        batches = entry.batches
        if len(batches) == BATCHES_MAX:
            del batches[0]
        last_sequence = NO_SEQUENCE if base_sequence == NO_SEQUENCE else (base_sequence + delta) & SEQUENCE_MAX
        # One per batch of a producer: the tuple's own constructor takes half the time of `BatchMeta(...)`.
        batches.append(_new_tuple(BatchMeta, (last_sequence, end - 1, delta, header.max_timestamp)))
        entry.last_timestamp = header.max_timestamp
        if header.attributes & _TXN_FLAG and entry.txn_first_offset is None:
            entry.txn_first_offset = header.base_offset
            self.ongoing[header.base_offset] = producer_id
        return None

    def last_stable_offset(self, completed: CompletedTxn) -> int:
        """The last stable offset once `completed` is over: what goes into the transaction index."""
        for first_offset, producer_id in self.ongoing.items():
            if producer_id != completed.producer_id:
                return first_offset
        return completed.last_offset + 1

    def complete(self, completed: CompletedTxn) -> None:
        """The transaction is decided; it stays unstable until the high watermark passes its marker."""
        # A transaction that began before the log start is not among the ongoing ones after a reload.
        self.ongoing.pop(completed.first_offset, None)
        self.unreplicated[completed.first_offset] = completed.last_offset

    # -- offsets

    @property
    def first_unstable_offset(self) -> int | None:
        if self.unreplicated:
            first = min(self.unreplicated)
            return min(first, next(iter(self.ongoing))) if self.ongoing else first
        return next(iter(self.ongoing)) if self.ongoing else None

    @property
    def first_undecided_offset(self) -> int | None:
        return next(iter(self.ongoing), None)

    def on_high_watermark(self, high_watermark: int) -> None:
        if self.unreplicated:
            self.unreplicated = {first: last for first, last in self.unreplicated.items() if last >= high_watermark}

    def on_log_start_offset(self, log_start_offset: int) -> None:
        self.on_high_watermark(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)
        latest = self.snapshots.latest
        self._snap_offset = log_start_offset if latest is None else latest

    def remove_expired(self, now_ms: int) -> None:
        """Forgets producers idle for `producer.id.expiration.ms`, unless a transaction of theirs is open."""
        expired = [entry.producer_id for entry in self.producers.values() if self._is_expired(entry, now_ms)]
        for producer_id in expired:
            del self.producers[producer_id]
        if self.verifications.guards:
            self.verifications.remove_expired(now_ms, self.expiration_ms)

    def _is_expired(self, entry: ProducerEntry, now_ms: int) -> bool:
        return entry.txn_first_offset is None and now_ms - entry.last_timestamp >= self.expiration_ms

    # -- snapshots

    def take_snapshot(self, durable: bool = True) -> str | None:
        """Writes the state at `map_end_offset` unless there is one; the path written. A durable one is synced: not on
        the loop."""
        offset = self.map_end_offset
        if offset <= self._snap_offset:
            return None
        path = self.snapshots.write(offset, self._rows(), durable)
        self._snap_offset = offset
        return path

    def _rows(self) -> list[Row]:
        rows = []
        for entry in self.producers.values():
            last = entry.batches[-1] if entry.batches else None
            rows.append(
                Row(
                    entry.producer_id,
                    entry.producer_epoch,
                    NO_SEQUENCE if last is None else last.last_sequence,
                    -1 if last is None else last.last_offset,
                    0 if last is None else last.offset_delta,
                    entry.last_timestamp,
                    entry.coordinator_epoch,
                    -1 if entry.txn_first_offset is None else entry.txn_first_offset,
                )
            )
        return rows

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Goes back to the newest snapshot within the log, unless nothing at or behind its end was ever applied. The
        caller replays the log from `map_end_offset` on."""
        self.snapshots.delete_outside(log_start_offset, log_end_offset)
        if self._loaded and log_end_offset >= self.map_end_offset:
            self.on_log_start_offset(log_start_offset)
            return
        self._clear()
        self._load(log_start_offset, now_ms)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        self._clear()
        self.snapshots.delete_all()
        self._snap_offset = 0
        self.map_end_offset = offset

    def _clear(self) -> None:
        self._loaded = True
        self.producers = {}
        self.ongoing = {}
        self.unreplicated = {}

    def _load(self, log_start_offset: int, now_ms: int) -> None:
        found = self.snapshots.read_latest()
        if found is None:
            self._snap_offset = self.map_end_offset = log_start_offset
            return
        offset, rows = found
        for row in rows:
            entry = ProducerEntry(
                row.producer_id,
                row.epoch,
                row.coordinator_epoch,
                row.timestamp,
                row.txn_first_offset if row.txn_first_offset >= 0 else None,
            )
            if self._is_expired(entry, now_ms):
                continue
            if row.last_offset >= 0:
                entry.batches = [BatchMeta(row.last_sequence, row.last_offset, row.offset_delta, row.timestamp)]
            self.producers[row.producer_id] = entry
        opened = [e for e in self.producers.values() if e.txn_first_offset is not None]
        opened.sort(key=lambda e: e.txn_first_offset or 0)
        self.ongoing = {e.txn_first_offset or 0: e.producer_id for e in opened}
        self._snap_offset = self.map_end_offset = offset


def _fenced(entry: ProducerEntry, epoch: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"Epoch of producer {entry.producer_id} is {epoch}, which is smaller than the last seen epoch "
        f"{entry.producer_epoch}",
    )


def _stale_epoch(entry: ProducerEntry, epoch: int, offset: int, comparison: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"Epoch of producer {entry.producer_id} at offset {offset} is {epoch}, which is {comparison} the last seen "
        f"epoch {entry.producer_epoch}",
    )
