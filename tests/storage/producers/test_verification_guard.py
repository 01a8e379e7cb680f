"""Guards of transactional writes (KIP-890): what may be appended after the coordinator was asked, and what may not."""

from __future__ import annotations

from pathlib import Path

import pytest
from pylogd.protocol import batch
from pylogd.protocol.batch import BatchHeader, parse_header
from pylogd.protocol.control import end_txn_batch
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.runtime.files import FileSystem
from pylogd.storage.producers.producer_state import ProducerStates, read_marker
from pylogd.storage.producers.verification_guard import UNVERIFIED, Guard
from pylogd.storage.validation import Origin

PRODUCER = 7


class Log:
    """Just the producers of one."""

    def __init__(self, directory: Path) -> None:
        self.producers = ProducerStates(FileSystem(), str(directory))
        self.end = 0

    def ask(self, sequence: int = 0, epoch: int = 0, *, bump: bool = False, now_ms: int = 0) -> Guard:
        return self.producers.start_verification(PRODUCER, sequence, epoch, bump, now_ms)

    def append(self, guard: Guard | None, sequence: int = 0, epoch: int = 0, transactional: bool = True) -> bool:
        """True when the batch was there already."""
        header = data(sequence, epoch, transactional)
        header.base_offset = self.end
        if self.producers.check(header, self.end, Origin.CLIENT, guard=guard) is not None:
            return True
        self.producers.apply(header)
        self.end += 1
        return False

    def end_transaction(self, epoch: int = 0, version: int = 0) -> None:
        records = end_txn_batch(
            commit=True, coordinator_epoch=0, producer_id=PRODUCER, producer_epoch=epoch, timestamp_ms=0
        )
        header = parse_header(memoryview(records))
        header.base_offset = self.end
        marker = read_marker(memoryview(records), header)
        self.producers.check(header, self.end, Origin.COORDINATOR, marker, version)
        completed = self.producers.apply(header, marker)
        if completed is not None:
            self.producers.complete(completed)
        self.end += 1


def data(sequence: int, epoch: int, transactional: bool) -> BatchHeader:
    made = batch.build_batch(
        [batch.Record(0, 0, b"k", b"v")],
        producer_id=PRODUCER,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    return parse_header(memoryview(made))


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def refused(log: Log, code: ErrorCode, guard: Guard | None, sequence: int = 0, epoch: int = 0) -> None:
    with pytest.raises(KafkaError) as refusal:
        log.append(guard, sequence, epoch)
    assert refusal.value.code is code


def test_only_the_first_write_is_asked_about(log: Log) -> None:
    guard = log.ask()
    assert guard is not UNVERIFIED
    assert log.ask() is guard
    log.append(guard)
    assert log.ask(1) is UNVERIFIED
    log.append(UNVERIFIED, 1)
    # A retry of either is a duplicate, whatever it carries.
    assert log.append(UNVERIFIED, 0)
    assert log.append(guard, 1)


def test_a_write_nobody_asked_about_is_refused(log: Log) -> None:
    refused(log, ErrorCode.INVALID_TXN_STATE, UNVERIFIED)
    # With verification turned off nobody has a guard.
    log.append(None)


def test_an_answer_that_comes_after_the_end_is_worth_nothing(log: Log) -> None:
    late = log.ask()
    log.end_transaction()
    refused(log, ErrorCode.INVALID_TXN_STATE, late)
    # Nor is it in the next transaction.
    log.append(log.ask())
    log.end_transaction()
    refused(log, ErrorCode.INVALID_TXN_STATE, late, 1)
    assert log.ask(1) is not late


def test_the_guard_of_the_next_transaction_outlives_the_marker_of_the_last(log: Log) -> None:
    """Since version 2 the producer goes on at once with the epoch of a marker that may still be under way."""
    log.append(log.ask(bump=True))
    ahead = log.ask(0, 1, bump=True)
    log.end_transaction(1, 2)
    log.append(ahead, 0, 1)


def test_a_fenced_producer_is_told_before_its_coordinator_is_asked(log: Log) -> None:
    log.append(log.ask(0, 3), 0, 3)
    for attempt in (lambda: log.ask(1, 2), lambda: log.append(UNVERIFIED, 1, 2)):
        with pytest.raises(KafkaError) as refusal:
            attempt()
        assert refusal.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_no_batch_overtakes_one_that_must_ask_again(log: Log) -> None:
    guard = log.ask(4)
    assert log.ask(2) is guard
    refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, guard, 4)
    log.append(guard, 2)


def test_a_higher_epoch_starts_its_sequences_anew(log: Log) -> None:
    guard = log.ask(0, 0)
    assert log.ask(0, 1) is guard
    log.append(guard, 0, 1)


def test_since_version_2_a_transaction_begins_with_sequence_0(log: Log) -> None:
    refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log.ask(3, bump=True), 3)


def test_other_records_need_no_guard(log: Log) -> None:
    log.append(UNVERIFIED, transactional=False)


def test_guards_that_nobody_used_expire(log: Log) -> None:
    guard = log.ask(now_ms=1000)
    log.producers.remove_expired(1000 + log.producers.expiration_ms - 1)
    assert log.ask() is guard
    log.producers.remove_expired(1000 + log.producers.expiration_ms)
    assert log.ask() is not guard
