"""Appending and reading: offsets, rolls, limits, ceilings, full disks; kafka-python reads what was written."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record import MemoryRecords
from pylogd.protocol.batch import Record, build_batch, parse_header
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.runtime.clock import ManualClock
from pylogd.runtime.simulated.simulated_files import SimulatedFileSystem
from pylogd.storage.log.log import Log
from pylogd.storage.log_config import INT64_MAX, LogConfig
from pylogd.storage.validation import Origin
from support.logs import NOW_MS, append, batch, check_indexes, environment, marker, new_log, read_all, stored


def test_offsets_and_epochs_are_stamped_into_the_batch(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    first = append(log, batch(3), epoch=5)
    second = append(log, batch(2), epoch=6)
    assert (first.base_offset, first.last_offset, second.base_offset, log.log_end_offset) == (0, 2, 3, 5)
    assert [(h.base_offset, h.partition_leader_epoch) for h, _ in stored(log)] == [(0, 5), (3, 6)]
    assert log.offset_for_epoch(5) == (5, 3)
    assert log.offset_for_epoch(6) == (6, 5)
    assert log.offset_for_epoch(7) == (-1, -1)


@pytest.mark.parametrize("codec", range(5))
def test_kafka_python_reads_the_file(tmp_path: Path, codec: int) -> None:
    log = new_log(tmp_path)
    for n in range(5):
        records = [Record(i, NOW_MS + n, b"key%d" % i, b"value %d %d" % (n, i), [("h", b"x")]) for i in range(3)]
        append(log, memoryview(build_batch(records, compression=codec)))
    log.close()
    reader = MemoryRecords((tmp_path / "t-0" / "00000000000000000000.log").read_bytes())
    found = []
    while reader.has_next():
        part = reader.next_batch()
        assert part is not None
        assert part.validate_crc()
        found += [(record.offset, record.key, record.value) for record in part]
    assert found == [(n * 3 + i, b"key%d" % i, b"value %d %d" % (n, i)) for n in range(5) for i in range(3)]


def test_segments_roll_by_size_and_names_are_their_base_offsets(tmp_path: Path) -> None:
    log = new_log(tmp_path, segment_bytes=1000, index_interval_bytes=200)
    for _ in range(30):
        append(log, batch(2, size=50))
    assert len(log.segments) > 3
    assert all(segment.size <= 1000 for segment in log.segments)
    check_indexes(log)
    names = sorted(p.name for p in (tmp_path / "t-0").glob("*.log"))
    assert names == [f"{base:020d}.log" for base in log.segments.base_offsets]
    assert [h.base_offset for h in read_all(log)] == list(range(0, 60, 2))


def test_segments_roll_when_their_first_record_is_old() -> None:
    surroundings = environment(SimulatedFileSystem())
    log = new_log("", surroundings, segment_ms=1000)
    append(log, batch(timestamp=NOW_MS))
    append(log, batch(timestamp=NOW_MS + 1000))
    assert len(log.segments) == 1
    append(log, batch(timestamp=NOW_MS + 1001))
    assert len(log.segments) == 2
    append(log, batch(timestamp=NOW_MS + 2001))
    assert len(log.segments) == 2


def test_segments_without_timestamps_roll_by_the_wall_clock() -> None:
    clock = ManualClock(NOW_MS)
    log = new_log("", environment(SimulatedFileSystem(), clock), segment_ms=1000)
    append(log, batch(timestamp=-1, step_ms=0))
    clock.advance(1000)
    append(log, batch(timestamp=-1, step_ms=0))
    assert len(log.segments) == 1
    clock.advance(1)
    append(log, batch(timestamp=-1, step_ms=0))
    assert len(log.segments) == 2


def test_jitter_rolls_earlier_but_never_later() -> None:
    log = new_log("", environment(SimulatedFileSystem()), segment_ms=1000, segment_jitter_ms=900)
    jitter = log.active.jitter_ms
    assert 0 < jitter < 900
    append(log, batch(timestamp=NOW_MS))
    append(log, batch(timestamp=NOW_MS + 1000 - jitter))
    assert len(log.segments) == 1
    append(log, batch(timestamp=NOW_MS + 1001 - jitter))
    assert len(log.segments) == 2


def test_segments_roll_when_an_index_is_full() -> None:
    log = new_log("", environment(SimulatedFileSystem()), segment_index_bytes=36, index_interval_bytes=0)
    for n in range(12):
        append(log, batch(timestamp=NOW_MS + n))
    assert len(log.segments) >= 3
    for segment in log.segments:
        assert segment.time_index.entries <= 3
    check_indexes(log)


def test_segments_roll_when_offsets_no_longer_fit() -> None:
    log = new_log("", environment(SimulatedFileSystem()))
    append(log, batch())
    far = build_batch([Record(0, NOW_MS, None, b"", ())], base_offset=2**31 + 5, leader_epoch=0)
    log.append_as_follower(memoryview(far), 0)
    assert log.segments.base_offsets == [0, 2**31 + 5]
    assert [h.base_offset for h in read_all(log)] == [0, 2**31 + 5]


def test_a_config_change_works_at_once() -> None:
    log = new_log("", environment(SimulatedFileSystem()))
    for _ in range(3):
        append(log, batch(size=100))
    log.update_config(LogConfig(segment_bytes=300, max_message_bytes=250))
    append(log, batch(size=100))
    assert len(log.segments) == 2
    with pytest.raises(KafkaError) as refused:
        append(log, batch(size=300))
    assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE
    log.update_config(LogConfig(segment_bytes=300))
    with pytest.raises(KafkaError) as refused:
        append(log, batch(size=300))
    assert refused.value.code == ErrorCode.RECORD_LIST_TOO_LARGE


def test_log_append_time_replaces_timestamps() -> None:
    clock = ManualClock(NOW_MS + 500)
    log = new_log("", environment(SimulatedFileSystem(), clock), message_timestamp_type="LogAppendTime")
    info = append(log, batch(2, timestamp=NOW_MS))
    assert info.log_append_time_ms == NOW_MS + 500
    (header, _), *_ = stored(log)
    assert (header.max_timestamp, header.timestamp_type) == (NOW_MS + 500, 1)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda b: b.__setitem__(30, b[30] ^ 1), ErrorCode.CORRUPT_MESSAGE),
        (lambda b: b.__setitem__(slice(0, 8), (7).to_bytes(8, "big")), ErrorCode.INVALID_RECORD),
    ],
)
def test_refused_batches_change_nothing(change: object, code: ErrorCode) -> None:
    log = new_log("", environment(SimulatedFileSystem()))
    append(log, batch())
    bad = batch()
    assert callable(change)
    change(bad)
    with pytest.raises(KafkaError) as refused:
        append(log, bad)
    assert refused.value.code == code
    assert (log.log_end_offset, len(stored(log))) == (1, 1)


def test_idempotent_producers() -> None:
    log = new_log("", environment(SimulatedFileSystem()))

    def produced(sequence: int, epoch: int = 0) -> memoryview:
        return batch(2, producer_id=9, producer_epoch=epoch, base_sequence=sequence)

    assert append(log, produced(0)).base_offset == 0
    assert append(log, produced(2)).base_offset == 2
    again = append(log, produced(0))
    assert (again.duplicate, again.base_offset, again.last_offset) == (True, 0, 1)
    assert log.log_end_offset == 4
    with pytest.raises(KafkaError) as refused:
        append(log, produced(9))
    assert refused.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(log, produced(0, epoch=1)).base_offset == 4
    with pytest.raises(KafkaError) as refused:
        append(log, produced(4, epoch=0))
    assert refused.value.code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_transactions_hold_the_last_stable_offset() -> None:
    log = new_log("", environment(SimulatedFileSystem()))
    transactional = {"producer_id": 3, "producer_epoch": 0, "transactional": True}
    append(log, batch(2))
    append(log, batch(2, base_sequence=0, **transactional))
    append(log, batch(1))
    log.high_watermark = 5
    assert (log.first_unstable_offset, log.last_stable_offset) == (2, 2)
    append(log, marker(3, 0, commit=False), origin=Origin.COORDINATOR)
    assert log.last_stable_offset == 2
    log.high_watermark = 6
    assert (log.first_unstable_offset, log.last_stable_offset) == (None, 6)
    assert [entry[:3] for entry in log.aborted_transactions(0, 6)] == [(3, 2, 5)]
    assert log.aborted_transactions(0, 2) == []


def test_followers_take_what_the_leader_wrote() -> None:
    leader = new_log("/a", environment(SimulatedFileSystem()), segment_bytes=700)
    follower = new_log("/b", environment(SimulatedFileSystem()), segment_bytes=500, index_interval_bytes=100)
    for n in range(20):
        append(leader, batch(2, producer_id=4, producer_epoch=0, base_sequence=2 * n), epoch=n // 7)
    offset = 0
    while offset < leader.log_end_offset:
        found = leader.read(offset, 450, leader.log_end_offset)
        assert found.range is not None
        info = follower.append_as_follower(memoryview(bytearray(found.range.read())), 99)
        assert info is not None
        offset = info.last_offset + 1
    assert [data for _, data in stored(follower)] == [data for _, data in stored(leader)]
    assert follower.epochs.entries() == leader.epochs.entries()
    assert follower.producers.producers[4].last_sequence == leader.producers.producers[4].last_sequence
    check_indexes(follower)


def test_a_follower_refuses_offsets_it_has_and_ignores_torn_ends() -> None:
    log = new_log("", environment(SimulatedFileSystem()))
    data = bytes(build_batch([Record(0, NOW_MS, None, b"x", ())], base_offset=0, leader_epoch=0))
    more = bytes(build_batch([Record(0, NOW_MS, None, b"x", ())], base_offset=1, leader_epoch=3))
    assert log.append_as_follower(memoryview(bytearray(data + more[:-1])), 5)
    assert log.log_end_offset == 1
    with pytest.raises(KafkaError):
        log.append_as_follower(memoryview(bytearray(data)), 5)
    assert log.append_as_follower(memoryview(bytearray(more)), 2) is None  # of a later leader
    assert log.append_as_follower(memoryview(b""), 2) is None


# -- reading


def test_a_read_inside_a_batch_gives_that_batch() -> None:
    log = new_log("", environment(SimulatedFileSystem()))
    append(log, batch(10))
    append(log, batch(10))
    found = log.read(13, 1 << 20, log.log_end_offset)
    assert found.range is not None
    assert parse_header(found.range.read()).base_offset == 10


@given(
    counts=st.lists(st.integers(1, 5), min_size=1, max_size=40),
    reads=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 800), st.integers(0, 200)), max_size=20),
    restart=st.booleans(),
)
def test_reads_beside_a_list(counts: list[int], reads: list[tuple[int, int, int]], restart: bool) -> None:
    surroundings = environment(SimulatedFileSystem())
    log = new_log("", surroundings, segment_bytes=900, index_interval_bytes=150)
    for count in counts:
        append(log, batch(count))
    if restart:
        log.close()
        log = new_log("", surroundings, segment_bytes=900, index_interval_bytes=150)
    batches = stored(log)
    end = log.log_end_offset
    for offset, max_bytes, ceiling in reads:
        offset = min(offset, end)
        # Ceilings are always batch boundaries.
        ceiling = max((h.next_offset for h, _ in batches if h.next_offset <= ceiling), default=0)
        below = [(h, d) for h, d in batches if h.last_offset >= offset and h.next_offset <= ceiling]
        found = log.read(offset, max_bytes, ceiling)
        if not below:
            assert found.range is None
            continue
        assert found.range is not None
        data = found.range.read()
        joined = b"".join(d for _, d in below)
        assert joined.startswith(data)
        first = len(below[0][1])
        assert len(data) >= first
        assert len(data) <= max(max_bytes, first)
        assert found.first_batch_size == first
        small = log.read(offset, max_bytes, ceiling, at_least_one=False)
        assert (small.range is None) == (first > max_bytes)


def test_reads_outside_the_log() -> None:
    log = new_log("", environment(SimulatedFileSystem()))
    for _ in range(4):
        append(log, batch())
    log.high_watermark = 4
    log.delete_records_before(2)
    for offset in (-1, 1, 5):
        with pytest.raises(KafkaError) as refused:
            log.read(offset, 100, 4)
        assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(4, 100, 4).range is None
    assert log.read(3, 100, 2).range is None


def test_the_tail_is_found_without_touching_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = new_log(tmp_path)
    for _ in range(1000):
        append(log, batch())

    def never(*_: object) -> bytes:
        raise AssertionError("read from disk")

    monkeypatch.setattr(type(log.active.file), "pread", never)
    monkeypatch.setattr(type(log.active.file), "pread_nowait", never)
    for offset in (800, 998, 999):
        found = log.read(offset, 1 << 20, 1000)
        assert found.tail
        assert found.size > 0


# -- several batches in one write

_SMALL = st.tuples(st.integers(1, 3), st.integers(0, 120), st.integers(-500, 500), st.sampled_from([-1, -1, -1, 9]))


def together_at_once(log: Log, batches: list[memoryview]) -> list[int]:
    """The base offsets of those that were taken."""
    placed = log.place(batches, 0, NOW_MS)
    if placed is None:
        return []
    placed.write()
    return placed.bases


@given(
    batches=st.lists(_SMALL, min_size=1, max_size=30),
    together=st.integers(1, 8),
    interval=st.sampled_from([0, 100, 300]),
    index_bytes=st.sampled_from([36, 48, 10_000]),
)
def test_batches_appended_together_lie_as_if_appended_one_by_one(
    batches: list[tuple[int, int, int, int]], together: int, interval: int, index_bytes: int
) -> None:
    settings = {"segment_bytes": 2000, "index_interval_bytes": interval, "segment_index_bytes": index_bytes}
    logs = [new_log("", environment(SimulatedFileSystem()), **settings) for _ in "ab"]
    made: list[list[memoryview]] = [[], []]
    sequence = 0
    for count, size, late_ms, producer in batches:
        options = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence} if producer >= 0 else {}
        sequence += count if producer >= 0 else 0
        for copies in made:
            copies.append(batch(count, size=size, timestamp=NOW_MS + late_ms, **options))
    for each in made[0]:
        append(logs[0], each)
    left = made[1]
    while left:
        bases = together_at_once(logs[1], left[:together])
        if not bases:
            append(logs[1], left[0])
        left = left[max(1, len(bases)) :]
    one, other = logs
    assert [data for _, data in stored(one)] == [data for _, data in stored(other)]
    assert [h.base_offset for h in read_all(one)] == [h.base_offset for h in read_all(other)]
    for first, second in zip(one.segments, other.segments, strict=True):
        assert list(first.offset_index.items()) == list(second.offset_index.items())
        assert list(first.time_index.items()) == list(second.time_index.items())
        assert (first.max_timestamp, first.max_timestamp_offset) == (second.max_timestamp, second.max_timestamp_offset)


@pytest.mark.parametrize("bad", range(4))
def test_a_bad_batch_stops_those_behind_it(bad: int) -> None:
    log = new_log("", environment(SimulatedFileSystem()))
    append(log, batch())
    batches = [batch(size=n) for n in range(4)]
    batches[bad][-1] ^= 1
    assert together_at_once(log, batches) == list(range(1, 1 + bad))
    assert log.log_end_offset == 1 + bad
    assert len(stored(log)) == 1 + bad


def test_a_full_disk_refuses_all_batches_of_one_write() -> None:
    files = SimulatedFileSystem()
    log = new_log("", environment(files))
    append(log, batch(size=100))
    files.capacity_bytes = files._used_bytes() + 50
    batches = [batch(size=100) for _ in range(3)]
    with pytest.raises(KafkaError):
        together_at_once(log, batches)
    assert len(stored(log)) == log.log_end_offset == 1
    files.capacity_bytes = None
    assert together_at_once(log, [batch(size=100) for _ in range(3)]) == [1, 2, 3]


def test_batches_that_lose_their_places_are_as_before() -> None:
    log = new_log("", environment(SimulatedFileSystem()))
    append(log, batch())
    batches = [batch(size=n) for n in range(3)]
    placed = log.place(batches, 0, NOW_MS)
    assert placed is not None
    placed.forget()
    assert together_at_once(log, batches) == [1, 2, 3]
    assert len(stored(log)) == 4


# -- trouble


def test_a_full_disk_refuses_the_write_and_recovers_by_itself() -> None:
    files = SimulatedFileSystem()
    log = new_log("", environment(files), segment_bytes=4000)
    for _ in range(3):
        append(log, batch(size=100))
    files.capacity_bytes = files._used_bytes() + 50
    before = log.active.size
    for _ in range(2):
        with pytest.raises(KafkaError) as refused:
            append(log, batch(size=100))
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert not log.offline
        assert log.active.file.size() == before  # cut back to the last batch boundary
        assert [h.base_offset for h in read_all(log)] == [0, 1, 2]
    files.capacity_bytes = None
    assert append(log, batch(size=100)).base_offset == 3
    assert [h.base_offset for h in read_all(log)] == [0, 1, 2, 3]


def test_a_full_disk_in_the_middle_of_a_roll() -> None:
    files = SimulatedFileSystem()
    log = new_log("", environment(files), segment_bytes=500, index_interval_bytes=50)
    for _ in range(3):
        append(log, batch(size=60))
    files.capacity_bytes = files._used_bytes()
    with pytest.raises(KafkaError) as refused:
        append(log, batch(size=60))
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    files.capacity_bytes = None
    assert append(log, batch(size=60)).base_offset == 3
    assert len(log.segments) == 2
    check_indexes(log)


def test_a_full_disk_defers_a_flush_and_loses_no_abort() -> None:
    files = SimulatedFileSystem()
    log = new_log("", environment(files), index_interval_bytes=0)
    append(log, batch(2, producer_id=3, producer_epoch=0, base_sequence=0, transactional=True))
    log.flush()
    append(log, batch(1), epoch=1)
    abort = marker(3, 0, commit=False)
    files.capacity_bytes = files._used_bytes() + len(abort)
    append(log, abort, epoch=1, origin=Origin.COORDINATOR)
    assert not files.read_bytes("/t-0/00000000000000000000.txnindex")
    assert [entry[:3] for entry in log.aborted_transactions(0, 9)] == [(3, 0, 3)]
    with pytest.raises(KafkaError) as refused:
        log.flush()  # the new leader epoch finds no room
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.offline, log.flushed_offset) == (False, 2)
    files.capacity_bytes = None
    log.flush()
    assert log.flushed_offset == 4
    log.close()
    again = new_log("", environment(files))
    assert [entry[:3] for entry in again.aborted_transactions(0, 9)] == [(3, 0, 3)]
    assert again.epochs.entries() == [(0, 0), (1, 2)]


def test_an_io_error_takes_the_log_offline() -> None:
    files = SimulatedFileSystem()
    log = new_log("", environment(files))
    append(log, batch())
    files.faults["write"] = errno.EIO
    with pytest.raises(KafkaError) as refused:
        append(log, batch())
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    files.faults.clear()
    for use in (lambda: append(log, batch()), lambda: log.read(0, 1, 1), lambda: log.truncate_to(0)):
        with pytest.raises(KafkaError) as refused:
            use()
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR


def test_flush_messages_asks_for_a_flush() -> None:
    log = new_log("", environment(SimulatedFileSystem()), flush_messages=3)
    flushed: list[int] = []
    log.flush_listeners.append(lambda moved: flushed.append(moved.flushed_offset))
    append(log, batch(2))
    assert log.flushed_offset == 0
    append(log, batch(2))
    assert (log.flushed_offset, flushed) == (4, [4])


def test_preallocated_files_are_trimmed() -> None:
    surroundings = environment(SimulatedFileSystem())
    log = new_log("", surroundings, segment_bytes=1000, preallocate=True)
    assert surroundings.files.scan("/t-0")[0][2] == 1000
    append(log, batch())
    size = log.active.size
    assert [h.base_offset for h in read_all(log)] == [0]
    log.roll()
    assert surroundings.files.scan("/t-0")[0][:3] == ("00000000000000000000.index", False, 0)
    assert log.segments.first.file.size() == size
    log.close()
    assert new_log("", surroundings, segment_bytes=1000).log_end_offset == 1


def test_roll_of_an_empty_segment_changes_nothing() -> None:
    log = new_log("", environment(SimulatedFileSystem()))
    assert log.roll() is log.active
    append(log, batch())
    log.roll()
    log.roll()
    assert log.segments.base_offsets == [0, 1]


def test_config_from_values() -> None:
    config = LogConfig.from_values(
        {"segment.bytes": 5, "cleanup.policy": "compact, delete", "retention.ms": 7, "leader.x": 1, "segment.ms": 100}
    )
    assert (config.segment_bytes, config.compact, config.delete, config.retention_ms) == (5, True, True, 7)
    assert config.max_compaction_lag_ms == INT64_MAX
    assert config.roll_ms == 100
    assert LogConfig.from_values({"internal.segment.bytes": 9, "segment.bytes": 5}).segment_bytes == 9
