"""The two ends of a log: truncation, retention, deleted records; and look-ups by time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pylogd.protocol.batch import Record, build_batch
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.runtime.clock import ManualClock
from pylogd.runtime.simulated.simulated_files import SimulatedFileSystem
from pylogd.storage.log.log import Log
from pylogd.storage.log.log_environment import LogEnvironment
from pylogd.storage.log.offset_lookup import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)
from pylogd.storage.log_config import LogConfig
from support.logs import NOW_MS, append, batch, check_indexes, environment, new_log, read_all, stored

SMALL = {"segment_bytes": 600, "index_interval_bytes": 100}


def filled(count: int = 30, surroundings: LogEnvironment | None = None, **config: object) -> Log:
    log = new_log("", surroundings or environment(SimulatedFileSystem()), **{**SMALL, **config})
    for n in range(count):
        append(log, batch(2, timestamp=NOW_MS + 100 * n), epoch=n // 10)
    log.high_watermark = log.log_end_offset
    return log


def offsets(log: Log) -> list[int]:
    return [header.base_offset for header in read_all(log)]


def names(log: Log) -> list[str]:
    return log.environment.files.listdir("/t-0")


# -- truncation


@pytest.mark.parametrize("target", [0, 1, 2, 17, 20, 21, 40, 59])
def test_truncation_removes_every_batch_that_reaches_the_offset(target: int) -> None:
    log = filled()
    log.flush()
    assert log.truncate_to(target)
    # A target inside a batch takes the whole batch, and the log still ends at the target.
    assert offsets(log) == [base for base in range(0, 60, 2) if base + 1 < target]
    assert (log.log_end_offset, log.high_watermark, log.recovery_point) == (target, target, target)
    assert all(start < target for _, start in log.epochs.entries())
    check_indexes(log)
    assert append(log, batch(), epoch=7).base_offset == target
    assert log.offset_for_epoch(7) == (7, target + 1)


def test_truncation_above_the_end_does_nothing() -> None:
    log = filled(5)
    generation = log.generation
    assert not log.truncate_to(10)
    assert not log.truncate_to(99)
    assert (log.log_end_offset, log.generation) == (10, generation)


def test_truncation_restores_the_producers() -> None:
    log = new_log("", environment(SimulatedFileSystem()), **SMALL)
    for n in range(20):
        append(log, batch(2, producer_id=5, producer_epoch=0, base_sequence=2 * n))
    log.truncate_to(22)
    assert log.producers.producers[5].last_sequence == 21
    assert append(log, batch(2, producer_id=5, producer_epoch=0, base_sequence=22)).base_offset == 22


def test_truncation_below_the_first_segment_empties_the_log() -> None:
    log = filled()
    log.update_config(LogConfig(**SMALL, retention_bytes=0))
    log.delete_old_segments()
    start = log.log_start_offset
    assert start > 10
    log.truncate_to(5)
    assert (log.log_start_offset, log.log_end_offset, len(log.segments)) == (5, 5, 1)
    assert append(log, batch(), epoch=9).base_offset == 5


def test_truncate_fully() -> None:
    log = filled()
    generation = log.generation
    log.truncate_fully_and_start_at(100)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (100, 100, 100)
    assert log.epochs.entries() == []
    assert log.generation > generation
    assert append(log, batch(), epoch=3).base_offset == 100
    assert offsets(log) == [100]
    log.environment.run_pending()
    assert not [name for name in names(log) if name.endswith(".deleted")]


def test_a_truncation_spoils_a_flush_under_way() -> None:
    log = filled()
    plan = log.flush_plan()
    plan.run()
    log.truncate_to(30)
    append(log, batch(12), epoch=9)
    log.mark_flushed(plan)
    assert log.recovery_point <= 30


# -- retention


def test_retention_by_size_keeps_at_least_the_bound() -> None:
    log = filled(retention_bytes=1500)
    segments = log.segments.snapshot()
    assert log.delete_old_segments(NOW_MS) > 0
    assert 1500 <= log.size < 1500 + segments[0].size
    assert log.log_start_offset == log.segments.first.base_offset
    assert offsets(log)[0] == log.log_start_offset
    assert log.epochs.entries()[0] == (log.epochs.entries()[0][0], log.log_start_offset)


def test_retention_by_time_goes_by_the_largest_timestamp() -> None:
    log = filled(retention_ms=1000)
    assert log.delete_old_segments(NOW_MS + 1000) == 0
    log.delete_old_segments(NOW_MS + 2000)
    kept = log.segments.first
    assert kept.max_timestamp >= NOW_MS + 1000
    assert log.log_start_offset > 0


def test_retention_may_take_everything_and_leaves_an_empty_segment() -> None:
    log = filled(retention_ms=1000)
    log.delete_old_segments(NOW_MS + 10_000_000)
    assert (log.log_start_offset, log.log_end_offset, len(log.segments), log.size) == (60, 60, 1, 0)
    assert log.delete_old_segments(NOW_MS + 20_000_000) == 0
    assert append(log, batch(), epoch=3).base_offset == 60


def test_nothing_above_the_high_watermark_goes() -> None:
    log = filled(retention_ms=1000)
    log.high_watermark = 25
    log.delete_old_segments(NOW_MS + 10_000_000)
    assert log.log_start_offset <= 25
    assert log.log_end_offset == 60


def test_retention_without_bounds_and_for_compacted_topics() -> None:
    assert filled(retention_ms=-1).delete_old_segments(NOW_MS * 2) == 0
    log = filled(retention_ms=1, retention_bytes=1, cleanup_policy=("compact",))
    assert log.delete_old_segments(NOW_MS * 2) == 0
    log.delete_records_before(40)
    assert log.delete_old_segments(NOW_MS) > 0
    assert log.segments.first.base_offset <= 40


def test_records_without_timestamps_age_by_their_file() -> None:
    clock = ManualClock(NOW_MS)
    surroundings = environment(SimulatedFileSystem(clock=clock), clock)
    log = new_log("", surroundings, segment_bytes=300, retention_ms=1000)
    for _ in range(8):
        append(log, batch(timestamp=-1, step_ms=0))
    log.high_watermark = log.log_end_offset
    assert log.delete_old_segments() == 0
    clock.advance(1001)
    assert log.delete_old_segments() > 0


def test_deleted_files_are_renamed_first_and_removed_later() -> None:
    log = filled(retention_bytes=1000)
    before = names(log)
    log.delete_old_segments(NOW_MS)
    renamed = [name for name in names(log) if name.endswith(".deleted")]
    assert {name.removesuffix(".deleted") for name in renamed} <= set(before)
    assert any(".snapshot" in name for name in renamed)
    log.environment.run_pending()
    assert not [name for name in names(log) if name.endswith(".deleted")]
    assert [name for name in names(log) if name.endswith(".log")] == [
        f"{base:020d}.log" for base in log.segments.base_offsets
    ]


def test_a_reader_of_a_deleted_segment_finishes() -> None:
    log = filled(retention_bytes=1000)
    found = log.read(0, 200, log.log_end_offset)
    assert found.range is not None
    data = found.range.read()
    found.range.acquire()
    log.delete_old_segments(NOW_MS)
    log.environment.run_pending()
    assert found.range.read() == data
    found.range.release()


def test_delete_records_moves_the_start_at_once_and_the_files_later() -> None:
    log = filled()
    assert log.delete_records_before(31) == 31
    assert (log.log_start_offset, log.segments.first.base_offset) == (31, 0)
    assert offsets(log)[0] == 30  # the batch that holds it
    assert log.delete_records_before(10) == 31
    with pytest.raises(KafkaError) as refused:
        log.delete_records_before(61)
    assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.delete_old_segments(NOW_MS) > 0
    assert log.segments.first.base_offset <= 31


def test_swapped_segments_serve_what_compaction_kept() -> None:
    from pylogd.storage.segments.scan import scan_batches
    from pylogd.storage.segments.segment import CLEANED_SUFFIX, Segment

    log = filled()
    old = log.segments.snapshot()[:2]
    new = Segment(log.environment, log.directory, 0, log.config, suffix=CLEANED_SUFFIX)
    new.create()
    kept = [item for segment in old for item in scan_batches(segment.file, 0, segment.size)][::3]
    for _, header, view in kept:
        new.file.pwrite(view, new.size)
        new.note_batch(new.size, header.length, header.last_offset, header.max_timestamp, 100)
        new.size += header.length
    new.become_inactive()
    generation = log.generation
    log.replace_segments([new], old)
    bound = log.segments.snapshot()[1].base_offset
    assert offsets(log) == [header.base_offset for _, header, _ in kept] + list(range(bound, 60, 2))
    assert log.generation > generation
    check_indexes(log)
    # An offset that is gone is answered with the next batch that is left.
    assert read_all(log, start=kept[0][1].next_offset)[0].base_offset == kept[1][1].base_offset
    log.environment.run_pending()
    assert len(names(log)) == len([name for name in names(log) if not name.endswith((".deleted", ".swap", ".cleaned"))])


# -- look-ups


@given(
    st.lists(st.lists(st.integers(-50, 300), min_size=1, max_size=4), min_size=1, max_size=25), st.integers(-60, 400)
)
def test_timestamps_beside_a_list(batches: list[list[int]], target: int) -> None:
    log = new_log("", environment(SimulatedFileSystem()), **SMALL)
    records: list[tuple[int, int]] = []
    for values in batches:
        made = [Record(i, NOW_MS + value, b"k", b"v" * 20, ()) for i, value in enumerate(values)]
        base = append(log, memoryview(build_batch(made))).base_offset
        records += [(base + i, NOW_MS + value) for i, value in enumerate(values)]
    found = log.offset_for_timestamp(NOW_MS + target)
    # Within the first segment that reaches the timestamp the earliest record wins, as in Kafka.
    wanted = [(offset, timestamp) for offset, timestamp in records if timestamp >= NOW_MS + target]
    assert (found[:2] if found else None) == (wanted[0] if wanted else None)
    latest = log.offset_for_timestamp(MAX_TIMESTAMP, nowait=True)
    top = max(timestamp for _, timestamp in records)
    assert latest is not None
    assert latest[:2] == next(record for record in records if record[1] == top)


def test_special_timestamps() -> None:
    log = filled()
    log.delete_records_before(5)
    for timestamp in (EARLIEST, EARLIEST_LOCAL):
        assert log.offset_for_timestamp(timestamp) == (5, -1, 0)
    assert log.offset_for_timestamp(LATEST) == (60, -1, 2)
    for timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        assert log.offset_for_timestamp(timestamp) == (-1, -1, -1)
    found = log.offset_for_timestamp(NOW_MS)
    assert found is not None
    assert found.offset == 5  # nothing below the start
    assert log.offset_for_timestamp(NOW_MS + 10**9) is None
    empty = new_log("/empty", environment(SimulatedFileSystem()))
    assert empty.offset_for_timestamp(MAX_TIMESTAMP) is None
    assert empty.offset_for_timestamp(NOW_MS) is None


def test_everything_stored_is_whole() -> None:
    assert len(stored(filled())) == 30
