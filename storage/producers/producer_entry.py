"""What is known of one producer, and the control records that end its transactions."""

from __future__ import annotations

from typing import NamedTuple

from pylogd.protocol import batch
from pylogd.protocol.batch import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, SEQUENCE_MAX, BatchHeader
from pylogd.protocol.control import ControlType, control_type, marker_coordinator_epoch


class BatchMeta(NamedTuple):
    """One appended batch of a producer."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MAX

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class Marker(NamedTuple):
    """The end of a transaction as its control record says it."""

    commit: bool
    coordinator_epoch: int
    timestamp: int


class CompletedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class ProducerEntry:
    __slots__ = ("batches", "coordinator_epoch", "last_timestamp", "producer_epoch", "producer_id", "txn_first_offset")

    def __init__(
        self,
        producer_id: int,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        coordinator_epoch: int = -1,
        last_timestamp: int = NO_TIMESTAMP,
        txn_first_offset: int | None = None,
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.txn_first_offset = txn_first_offset
        self.batches: list[BatchMeta] = []

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else -1

    def find(self, header: BatchHeader) -> BatchMeta | None:
        """The batch that has the sequences of this one, which is its retry then."""
        first = header.base_sequence
        last = (first + header.last_offset_delta) & SEQUENCE_MAX
        for known in self.batches:
            if known.last_sequence == last and known.first_sequence == first:
                return known
        return None

    def take_epoch(self, epoch: int) -> None:
        if self.producer_epoch != epoch:
            self.producer_epoch = epoch
            self.batches = []

    def __repr__(self) -> str:
        return (
            f"ProducerEntry({self.producer_id}, epoch={self.producer_epoch}, coordinator={self.coordinator_epoch}, "
            f"txn={self.txn_first_offset}, batches={self.batches})"
        )


def read_marker(view: batch.Buffer, header: BatchHeader, pos: int = 0) -> Marker | None:
    """The marker in a control batch; None for one that compaction emptied, and for the quorum's control records."""
    for record in batch.batch_records(view, header, pos):
        kind = control_type(record.key)
        if kind not in (ControlType.ABORT, ControlType.COMMIT):
            return None
        return Marker(kind == ControlType.COMMIT, marker_coordinator_epoch(record.value), record.timestamp)
    return None
