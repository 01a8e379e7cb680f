"""Sequences, epochs and transactions: what is refused, what is a retry, and what survives on disk."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from crc32c import crc32c
from pylogd.protocol import batch, control
from pylogd.protocol.batch import SEQUENCE_MAX, Record
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.runtime.files import FileSystem
from pylogd.storage.producers import producer_snapshot
from pylogd.storage.producers.producer_state import BatchMeta, CompletedTxn, ProducerStates, read_marker
from pylogd.storage.validation import Origin

PID = 9


class Harness:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.states = ProducerStates(FileSystem(), str(directory))
        self.end = 0
        self.aborted: list[tuple[CompletedTxn, int]] = []

    def send(
        self,
        sequence: int,
        count: int = 1,
        epoch: int = 0,
        pid: int = PID,
        txn: bool = False,
        origin: Origin = Origin.CLIENT,
        timestamp: int = 100,
    ) -> BatchMeta | None:
        """Appends if it may; a duplicate is returned instead."""
        view = batch.build_batch(
            [Record(0, timestamp, None, b"")] * count,
            base_offset=self.end,
            producer_id=pid,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=txn,
        )
        header = batch.parse_header(view)
        duplicate = self.states.check(header, self.end, origin)
        if duplicate is None:
            assert self.states.apply(header) is None
            self.end = header.next_offset
        return duplicate

    def mark(
        self,
        commit: bool,
        epoch: int = 0,
        coordinator: int = 1,
        version: int = 0,
        pid: int = PID,
        origin: Origin = Origin.COORDINATOR,
    ) -> CompletedTxn | None:
        view = control.end_txn_batch(
            commit=commit,
            coordinator_epoch=coordinator,
            producer_id=pid,
            producer_epoch=epoch,
            timestamp_ms=200,
            base_offset=self.end,
        )
        header = batch.parse_header(view)
        marker = read_marker(view, header)
        self.states.check(header, self.end, origin, marker, version)
        completed = self.states.apply(header, marker)
        self.end = header.next_offset
        if completed is not None:
            if completed.aborted:
                self.aborted.append((completed, self.states.last_stable_offset(completed)))
            self.states.complete(completed)
        return completed

    def refuses(self, code: ErrorCode, *args: object, **kwargs: object) -> None:
        before = repr(self.states.producers)
        with pytest.raises(KafkaError) as caught:
            (self.mark if args and isinstance(args[0], bool) else self.send)(*args, **kwargs)  # type: ignore[operator]
        assert caught.value.code == code
        assert repr(self.states.producers) == before


@pytest.fixture
def log(tmp_path: Path) -> Harness:
    return Harness(tmp_path)


def test_sequences_must_follow_each_other(log: Harness) -> None:
    log.send(0, 3)
    log.send(3)
    for sequence in (3 + 2, 100, 1):
        log.refuses(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, sequence)
    log.send(4)
    assert log.states.producers[PID].last_sequence == 4


def test_an_unknown_producer_may_start_anywhere(log: Harness) -> None:
    # Its records may have been deleted by retention.
    log.send(77)
    log.send(78)


def test_the_last_five_batches_are_remembered(log: Harness) -> None:
    for n in range(7):
        assert log.send(n * 2, 2) is None
    for n in range(2, 7):
        duplicate = log.send(n * 2, 2)
        assert duplicate is not None
        assert (duplicate.first_offset, duplicate.last_offset) == (n * 2, n * 2 + 1)
    log.refuses(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 2, 2)
    log.refuses(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 12, 1)  # same start, other end
    assert log.send(14) is None


def test_sequences_wrap(log: Harness) -> None:
    log.send(SEQUENCE_MAX - 1, 4)
    entry = log.states.producers[PID]
    assert entry.last_sequence == 1
    assert entry.batches[0].first_sequence == SEQUENCE_MAX - 1
    assert log.send(SEQUENCE_MAX - 1, 4) is not None
    log.send(2)
    log.send(3, 1)
    other = Harness(log.directory)
    other.send(SEQUENCE_MAX)
    other.send(0)


def test_a_new_epoch_starts_at_zero_and_fences_the_old(log: Harness) -> None:
    log.send(0, 5)
    log.refuses(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 5, epoch=1)
    log.send(0, epoch=1)
    assert [m.last_offset for m in log.states.producers[PID].batches] == [5]
    log.refuses(ErrorCode.INVALID_PRODUCER_EPOCH, 5, epoch=0)
    log.refuses(ErrorCode.INVALID_PRODUCER_EPOCH, 0, 5, epoch=0)  # not even as a duplicate


def test_coordinators_are_checked_for_epochs_only(log: Harness) -> None:
    log.send(-1, epoch=3, origin=Origin.COORDINATOR)
    log.send(-1, epoch=3, origin=Origin.COORDINATOR)
    log.refuses(ErrorCode.INVALID_PRODUCER_EPOCH, -1, epoch=2, origin=Origin.COORDINATOR)
    log.send(-1, epoch=5, origin=Origin.COORDINATOR)


def test_replicas_take_what_the_leader_took(log: Harness) -> None:
    log.send(5, epoch=3)
    log.send(90, epoch=3, origin=Origin.REPLICATION)
    log.send(0, epoch=1, origin=Origin.REPLICATION)
    assert log.states.producers[PID].producer_epoch == 1


def test_a_transaction_is_unstable_until_the_watermark_passes_its_marker(log: Harness) -> None:
    states = log.states
    log.send(0)
    assert states.first_unstable_offset is None
    log.send(1, txn=True)
    log.send(2, txn=True)
    assert (states.first_unstable_offset, states.first_undecided_offset) == (1, 1)
    assert states.has_ongoing_transaction(PID, 0)
    assert not states.has_ongoing_transaction(PID, 1)
    assert log.mark(True) == CompletedTxn(PID, 1, 3, aborted=False)
    assert (states.first_unstable_offset, states.first_undecided_offset) == (1, None)
    states.on_high_watermark(3)
    assert states.first_unstable_offset == 1
    states.on_high_watermark(4)
    assert states.first_unstable_offset is None


def test_overlapping_transactions_and_the_last_stable_offset_of_an_abort(log: Harness) -> None:
    log.send(0, pid=1, txn=True)  # 0
    log.send(0, pid=2, txn=True)  # 1
    log.send(1, pid=1, txn=True)  # 2
    log.mark(False, pid=2)  # 3
    log.mark(False, pid=1)  # 4
    assert log.aborted == [(CompletedTxn(2, 1, 3, True), 0), (CompletedTxn(1, 0, 4, True), 5)]
    assert log.states.first_unstable_offset == 0


def test_non_transactional_data_within_a_transaction_is_refused(log: Harness) -> None:
    log.send(0, txn=True)
    log.refuses(ErrorCode.INVALID_TXN_STATE, 1)
    log.mark(True)
    log.send(1)


def test_a_marker_without_data_completes_nothing(log: Harness) -> None:
    assert log.mark(False, epoch=4) is None
    assert log.states.producers[PID].producer_epoch == 4
    log.refuses(ErrorCode.INVALID_PRODUCER_EPOCH, 0, epoch=3)
    log.refuses(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 1, epoch=4)
    log.send(0, epoch=4)


def test_markers_are_fenced_by_producer_and_coordinator_epoch(log: Harness) -> None:
    log.send(0, epoch=2, txn=True)
    log.refuses(ErrorCode.INVALID_PRODUCER_EPOCH, True, epoch=1)
    log.mark(True, epoch=2, coordinator=5)
    log.send(1, epoch=2, txn=True)
    log.refuses(ErrorCode.TRANSACTION_COORDINATOR_FENCED, True, epoch=2, coordinator=4)
    log.mark(True, epoch=2, coordinator=4, origin=Origin.REPLICATION)


def test_transaction_version_2_markers_come_with_a_new_epoch(log: Harness) -> None:
    log.send(0, epoch=2, txn=True)
    log.refuses(ErrorCode.INVALID_PRODUCER_EPOCH, True, epoch=2, version=2)
    assert log.mark(True, epoch=3, version=2) is not None
    assert log.mark(True, epoch=3, version=2) is None  # a retry of the same marker
    log.refuses(ErrorCode.INVALID_PRODUCER_EPOCH, True, epoch=2, version=2)
    log.send(0, epoch=3, txn=True)
    log.refuses(ErrorCode.INVALID_PRODUCER_EPOCH, True, epoch=3, version=2)


def test_idle_producers_expire_unless_a_transaction_is_open(log: Harness) -> None:
    log.send(0, pid=1, timestamp=1000)
    log.send(0, pid=2, timestamp=1000, txn=True)
    log.send(0, pid=3, timestamp=1001)
    log.states.expiration_ms = 50
    log.states.remove_expired(1050)
    assert set(log.states.producers) == {2, 3}


def test_snapshot_bytes_are_kafkas(log: Harness) -> None:
    log.send(10, 3, epoch=4, timestamp=123)
    log.send(13, 1, epoch=4, txn=True, timestamp=124)
    log.states.map_end_offset = log.end
    path = log.states.take_snapshot()
    assert path == str(log.directory / "00000000000000000004.snapshot")
    data = FileSystem().read_bytes(path)
    assert struct.unpack_from(">hIi", data) == (1, crc32c(data[6:]), 1)
    assert struct.unpack_from(">qhiqiqiq", data, 10) == (PID, 4, 13, 3, 0, 124, -1, 3)
    assert len(data) == 10 + 46
    assert log.states.take_snapshot() is None  # there is one


def test_reload_from_the_newest_snapshot_in_range(log: Harness) -> None:
    for n in range(4):
        log.send(n, txn=n == 3, timestamp=100)
        log.states.map_end_offset = log.end
        log.states.take_snapshot()
    states = ProducerStates(FileSystem(), str(log.directory))
    assert states.snapshots.offsets == [1, 2, 3, 4]
    states.truncate_and_reload(0, 3, now_ms=200)
    assert states.map_end_offset == 3
    assert states.snapshots.offsets == [1, 2, 3]
    assert states.producers[PID].batches == [BatchMeta(2, 2, 0, 100)]
    assert states.first_unstable_offset is None
    states.truncate_and_reload(2, 3, now_ms=200)
    assert states.snapshots.offsets == [3]
    states.truncate_fully_and_start_at(50)
    assert (states.snapshots.offsets, states.map_end_offset, states.producers) == ([], 50, {})


def test_reload_finds_open_transactions_and_skips_expired_producers(log: Harness) -> None:
    log.send(0, pid=1, txn=True, timestamp=100)
    log.send(0, pid=2, timestamp=100)
    log.send(0, pid=3, timestamp=5000)
    log.states.map_end_offset = log.end
    log.states.take_snapshot()
    states = ProducerStates(FileSystem(), str(log.directory), expiration_ms=1000)
    states.truncate_and_reload(0, log.end, now_ms=5000)
    assert set(states.producers) == {1, 3}
    assert states.first_unstable_offset == 0


def test_a_truncation_that_cuts_no_producer_keeps_the_state(log: Harness) -> None:
    log.states.truncate_and_reload(0, 0, 0)
    log.send(0, 2)
    log.states.truncate_and_reload(0, 2, 0)
    assert log.states.producers[PID].last_sequence == 1
    log.send(2)
    log.states.truncate_and_reload(0, 2, 0)
    assert log.states.producers == {}  # no snapshot: the caller replays from the start
    assert log.states.map_end_offset == 0


@pytest.mark.parametrize(
    "damage", [lambda d: d[:-1], lambda d: d[:20] + b"\xff" + d[21:], lambda d: b"\x00\x02" + d[2:]]
)
def test_a_damaged_snapshot_gives_way_to_an_older_one(log: Harness, damage) -> None:  # type: ignore[no-untyped-def]
    for n in range(2):
        log.send(n)
        log.states.map_end_offset = log.end
        log.states.take_snapshot()
    path = Path(log.states.snapshots.path(2))
    path.write_bytes(damage(path.read_bytes()))
    states = ProducerStates(FileSystem(), str(log.directory))
    states.truncate_and_reload(0, 2, now_ms=100)
    assert (states.map_end_offset, states.snapshots.offsets) == (1, [1])
    assert not path.exists()


def test_stray_snapshots(log: Harness) -> None:
    for offset in (0, 5, 10, 15, 20, 30):
        Path(log.states.snapshots.path(offset)).write_bytes(producer_snapshot.encode([]))
    states = ProducerStates(FileSystem(), str(log.directory))
    states.snapshots.delete_strays([0, 10, 20])
    assert states.snapshots.offsets == [0, 10, 20, 30]
    states.snapshots.delete_strays([0, 10, 40])
    assert states.snapshots.offsets == [0, 10]
    states.snapshots.delete_before(10)
    assert states.snapshots.offsets == [10]
    deleted = states.snapshots.mark_deleted(10)
    assert deleted is not None
    assert Path(deleted).exists()
    assert (states.snapshots.offsets, states.snapshots.mark_deleted(10)) == ([], None)


def test_the_log_start_moves(log: Harness) -> None:
    log.send(0, txn=True)
    log.mark(True)
    log.states.on_log_start_offset(5)
    assert log.states.first_unstable_offset is None
    assert log.states.map_end_offset == 5
    assert log.states.take_snapshot() is None
