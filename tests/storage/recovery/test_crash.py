"""A crash at every step of a log's life: what was flushed is there, and nothing that was never written is."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from pylogd.protocol.batch import BatchHeader, parse_header
from pylogd.protocol.errors import KafkaError
from pylogd.runtime.clock import ManualClock
from pylogd.runtime.simulated.simulated_files import Crash, SimulatedFileSystem
from pylogd.storage import checkpoint_file
from pylogd.storage.log.log import Log
from pylogd.storage.log.log_environment import LogEnvironment
from pylogd.storage.log_config import LogConfig
from pylogd.storage.producers.producer_replay import replay
from pylogd.storage.producers.producer_state import ProducerStates, read_marker
from pylogd.storage.recovery.loading import open_log
from pylogd.storage.segments.scan import scan_batches
from pylogd.storage.segments.segment import CLEANED_SUFFIX, Segment
from pylogd.storage.segments.txnindex import AbortedTxn, TransactionIndex
from pylogd.storage.validation import Origin
from support.logs import NOW_MS, append, batch, check_indexes, marker, read_all, stored

CONFIG = LogConfig(
    segment_bytes=600, index_interval_bytes=100, max_message_bytes=500, retention_bytes=2500, file_delete_delay_ms=0
)
TOP = "/data"
KEY = ("t", 0)


class Surroundings(LogEnvironment):
    """Keeps the checkpoint files that the manager would keep."""

    def recovery_point_lowered(self, log: Log) -> None:
        self.checkpoint(log)

    def checkpoint(self, log: Log) -> None:
        path = f"{TOP}/{checkpoint_file.RECOVERY_POINT}"
        checkpoint_file.write_offsets(self.files, path, {KEY: log.recovery_point})
        path = f"{TOP}/{checkpoint_file.LOG_START_OFFSET}"
        checkpoint_file.write_offsets(self.files, path, {KEY: log.log_start_offset})


class History:
    """What the workload has done, as far as the outside can know."""

    def __init__(self) -> None:
        #: Base offset -> every batch that was ever given this offset.
        self.written: dict[int, list[bytes]] = {}
        #: Batches that must be there: (base offset, last offset), in order.
        self.present: list[tuple[int, int]] = []
        self.flushed = 0
        self.log_start = 0
        #: The largest log start that anybody asked for.
        self.log_start_max = 0


class Workload:
    def __init__(self, files: SimulatedFileSystem, seed: int, steps: int) -> None:
        self.files = files
        self.chance = random.Random(seed)
        self.steps = steps
        self.clock = ManualClock(NOW_MS)
        self.surroundings = Surroundings(files, self.clock, random.Random(seed))
        self.history = History()
        self.sequences: dict[int, int] = {}
        self.open_transactions: set[int] = set()
        self.log: Log

    def open(self, clean: bool, sync: bool = True) -> Log:
        recovery = checkpoint_file.read_offsets(self.files, f"{TOP}/{checkpoint_file.RECOVERY_POINT}")
        starts = checkpoint_file.read_offsets(self.files, f"{TOP}/{checkpoint_file.LOG_START_OFFSET}")
        return open_log(
            self.surroundings,
            f"{TOP}/t-0",
            *KEY,
            CONFIG,
            log_start_offset=starts.get(KEY, 0),
            recovery_point=recovery.get(KEY, 0),
            clean=clean,
            sync=sync,
        )

    def run(self) -> None:
        self.files.mkdirs(TOP)
        self.files.sync_everything()
        self.log = self.open(clean=False)
        actions = [self.append] * 8 + [self.append_idempotent] * 4 + [self.append_transactional] * 4
        actions += [self.end_transaction] * 3 + [self.flush] * 3 + [self.checkpoint] * 2
        actions += [
            self.roll,
            self.delete_records,
            self.retention,
            self.truncate,
            self.compact,
            self.pending,
            self.reopen,
        ]
        for _ in range(self.steps):
            self.chance.choice(actions)()

    # -- actions

    def _append(self, records: memoryview, origin: Origin = Origin.CLIENT) -> None:
        log = self.log
        self.clock.advance(self.chance.randint(0, 20))
        base = log.log_end_offset
        header = parse_header(records)
        # Registered before the write: a torn append may still survive whole.
        stamped = bytearray(records)
        stamped[0:8] = base.to_bytes(8, "big")
        stamped[12:16] = (log.epochs.latest if log.epochs.latest >= 0 else 0).to_bytes(4, "big")
        self.history.written.setdefault(base, []).append(bytes(stamped))
        append(log, records, max(log.epochs.latest, 0), origin)
        self.history.present.append((base, base + header.last_offset_delta))
        log.high_watermark = log.log_end_offset
        self._note_flushed()

    def _note_flushed(self) -> None:
        self.history.flushed = max(self.history.flushed, self.log.recovery_point)

    def append(self) -> None:
        count, size = self.chance.randint(1, 4), self.chance.randint(0, 60)
        self._append(batch(count, size=size, timestamp=self.clock.now_ms() + self.chance.randint(-50, 50)))

    def append_idempotent(self, transactional: bool = False) -> None:
        producer_id = self.chance.randint(1, 3) + (10 if transactional else 0)
        sequence = self.sequences.get(producer_id, 0)
        known = self.log.producers.producers.get(producer_id)
        if known is not None and known.batches:
            sequence = known.last_sequence + 1
        count = self.chance.randint(1, 3)
        records = batch(
            count,
            size=self.chance.randint(0, 30),
            timestamp=self.clock.now_ms(),
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=transactional,
        )
        self._append(records)

    def append_transactional(self) -> None:
        self.append_idempotent(transactional=True)

    def end_transaction(self) -> None:
        open_ones = sorted(self.log.producers.ongoing.values())
        if open_ones:
            producer_id = self.chance.choice(open_ones)
            self._append(marker(producer_id, 0, self.chance.random() < 0.5, self.clock.now_ms()), Origin.COORDINATOR)

    def flush(self) -> None:
        self.log.flush()
        self._note_flushed()

    def checkpoint(self) -> None:
        self.surroundings.checkpoint(self.log)

    def roll(self) -> None:
        if self.log.active.size:
            self.log.roll()
            self._note_flushed()

    def delete_records(self) -> None:
        offset = self.chance.randint(self.log.log_start_offset, self.log.log_end_offset)
        self.history.log_start_max = max(self.history.log_start_max, offset)
        self.log.delete_records_before(offset)

    def retention(self) -> None:
        # Whatever goes is below the log end; the exact bound is known only afterwards.
        before = self.history.log_start_max
        self.history.log_start_max = self.log.log_end_offset
        self.log.delete_old_segments()
        self.history.log_start_max = max(before, self.log.log_start_offset)
        self._note_flushed()

    def truncate(self) -> None:
        if self.chance.random() < 0.5:
            return
        bases = [base for base, _ in self.history.present if base >= self.log.log_start_offset][-6:]
        if not bases:
            return
        offset = self.chance.choice(bases)
        self.history.flushed = min(self.history.flushed, offset)
        self.history.present = [item for item in self.history.present if item[0] < offset]
        self.log.truncate_to(offset)
        self.log.high_watermark = self.log.log_end_offset

    def compact(self) -> None:
        closed = self.log.segments.snapshot()[:-1]
        if not closed:
            return
        self.log.flush()
        self._note_flushed()
        first = self.chance.randrange(len(closed))
        old = closed[first : first + self.chance.randint(1, 3)]
        new = Segment(self.surroundings, self.log.directory, old[0].base_offset, CONFIG, suffix=CLEANED_SUFFIX)
        new.create()
        gone: set[int] = set()
        for segment in old:
            for _, header, view in scan_batches(segment.file, 0, segment.size):
                if header.producer_id < 0 and self.chance.random() < 0.5:
                    gone.add(header.base_offset)
                    continue
                position = new.size
                new.file.pwrite(view, position)
                new.size += header.length
                new.note_batch(position, header.length, header.last_offset, header.max_timestamp, 100)
            for entry in segment.txn_index.entries():
                new.txn_index.append(entry)
        new.become_inactive()
        new.sync(indexes=True)
        self.files.sync_dir(self.log.directory)
        self.history.present = [item for item in self.history.present if item[0] not in gone]
        self.log.replace_segments([new], old)

    def pending(self) -> None:
        self.surroundings.run_pending()

    def reopen(self) -> None:
        """An orderly stop, without the marker of the manager: `clean` is passed by hand."""
        self.log.flush()
        self._note_flushed()
        self.log.close()
        self.surroundings.checkpoint(self.log)
        self.surroundings.run_pending()
        self.log = self.open(clean=True)
        self.log.high_watermark = self.log.log_end_offset


def check(workload: Workload, survivor: SimulatedFileSystem, sync: bool) -> None:
    """Reopens after a crash and compares with history."""
    history = workload.history
    reopened = Workload(survivor, 99, 0)
    reopened.clock.advance(10_000)
    reopened.history = history
    log = reopened.log = reopened.open(clean=False, sync=sync)
    served = stored(log)
    for header, data in served:
        assert data in history.written.get(header.base_offset, []), f"{header} was never written"
    assert all(a[0].last_offset < b[0].base_offset for a, b in pairwise(served))
    assert log.log_end_offset >= history.flushed
    assert log.log_start_offset <= max(history.log_start_max, history.flushed)
    there = {header.base_offset for header, _ in served}
    for base, last in history.present:
        if last < history.flushed and base >= history.log_start_max:
            assert base in there, f"[{base}, {last}] was flushed up to {history.flushed} and is gone"
    assert [header.base_offset for header in read_all(log, max_bytes=200)] == [
        header.base_offset for header, _ in served if header.last_offset >= log.log_start_offset
    ]
    assert log.recovery_point == log.log_end_offset or not sync
    check_indexes(log)
    check_producers(log, [header for header, _ in served])
    if sync:
        check_life_goes_on(reopened)
    else:
        # Used for a while and hit by another crash, without anything that the first recovery could have left undone.
        log.high_watermark = log.log_end_offset
        history.present = [(header.base_offset, header.last_offset) for header, _ in served]
        for _ in range(reopened.chance.randint(0, 8)):
            reopened.chance.choice([reopened.append, reopened.append_idempotent, reopened.flush, reopened.checkpoint])()
        check(reopened, survivor.after_crash(), sync=True)


def check_producers(log: Log, headers: list[BatchHeader]) -> None:
    """The state is that of a replay, except for what lies before the first batch that is left."""
    fresh = ProducerStates(SimulatedFileSystem(), "/", [])
    index = TransactionIndex(SimulatedFileSystem(), "/x", 0, new=True)
    aborted: list[AbortedTxn] = []
    headers = [header for header in headers if header.last_offset >= log.log_start_offset]
    first = headers[0].base_offset if headers else log.log_end_offset
    for segment in log.segments:
        for _, header, view in scan_batches(segment.file, 0, segment.size):
            if header.producer_id >= 0 and header.base_offset >= first:
                replay(fresh, header, read_marker(view, header) if header.is_control else None, index)
        aborted += segment.txn_index.entries()
    for producer_id, entry in fresh.producers.items():
        known = log.producers.producers[producer_id]
        assert known.producer_epoch == entry.producer_epoch
        if entry.batches:
            # A snapshot keeps one timestamp per producer, which a marker may have moved.
            assert known.batches[-1][:3] == entry.batches[-1][:3]
        if entry.txn_first_offset is not None and known.txn_first_offset != entry.txn_first_offset:
            assert known.txn_first_offset is not None
            assert known.txn_first_offset < first
    for producer_id, known in log.producers.producers.items():
        if producer_id not in fresh.producers:
            assert not known.batches or known.last_offset < first
    starts = {(entry.producer_id, entry.last_offset): entry.first_offset for entry in aborted}
    for entry in index.entries():
        start = starts.pop((entry.producer_id, entry.last_offset))
        assert start == entry.first_offset or start < first
    # What is left ended a transaction of which no batch is left.
    assert all(start < first for start in starts.values())


def check_life_goes_on(reopened: Workload) -> None:
    """The recovered log takes appends, and an orderly stop and start finds them."""
    reopened.log.high_watermark = reopened.log.log_end_offset
    reopened._append(batch(2, timestamp=reopened.clock.now_ms()))
    end, before = reopened.log.log_end_offset, stored(reopened.log)
    reopened.reopen()
    assert reopened.log.log_end_offset == end
    assert [data for _, data in stored(reopened.log)] == [data for _, data in before]
    check_indexes(reopened.log)


def crash_and_check(seed: int, steps: int, crash_at: int) -> bool:
    """False when the workload ends before that step."""
    files = SimulatedFileSystem(seed * 1_000_003 + crash_at)
    workload = Workload(files, seed, steps)
    files.crash_at = crash_at
    try:
        workload.run()
    except Crash:
        pass
    else:
        return False
    try:
        check(workload, files.after_crash(), sync=crash_at % 2 == 0)
    except (AssertionError, KafkaError, KeyError, OSError, ValueError) as error:
        raise AssertionError(f"seed {seed}, crash at {crash_at} ({files.history[-3:]}): {error}") from error
    return True


def count_steps(seed: int, steps: int) -> int:
    files = SimulatedFileSystem(seed)
    workload = Workload(files, seed, steps)
    workload.run()
    return files.steps


@pytest.mark.parametrize("seed", range(3))
def test_a_crash_at_every_step(seed: int) -> None:
    total = count_steps(seed, 40)
    assert total > 100
    for crash_at in range(1, total + 1):
        assert crash_and_check(seed, 40, crash_at)
    assert not crash_and_check(seed, 40, total + 1)


@pytest.mark.parametrize("seed", range(100, 130))
def test_crashes_late_in_a_long_life(seed: int) -> None:
    total = count_steps(seed, 250)
    chance = random.Random(seed)
    for _ in range(3):
        assert crash_and_check(seed, 250, chance.randint(total // 2, total))
