"""Compaction against a model: a dictionary of what was written, whatever batches, codecs and transactions around it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pylogd.protocol import batch
from pylogd.storage.compaction.cleaner import CleanerConfig, plan_job, swap_in
from pylogd.storage.compaction.compaction import compact, group_sources
from pylogd.storage.compaction.compaction_job import CleanedGroup, Source
from pylogd.storage.compaction.compactor import ProcessCompactor
from pylogd.storage.compaction.dirtiness import examine
from support.compaction import RETENTION_MS, Bench

KEYS = [b"a", b"b", b"c", b"d", b"e"]
rows = st.lists(st.tuples(st.sampled_from(KEYS), st.none() | st.binary(max_size=30)), min_size=1, max_size=5)
steps = st.one_of(
    st.tuples(st.just("append"), rows, st.integers(0, 4), st.integers(-1, 2)),
    st.tuples(st.just("txn"), rows, st.integers(0, 4), st.integers(3, 5)),
    st.tuples(st.just("end"), st.integers(3, 5), st.booleans()),
    st.tuples(st.just("wait"), st.integers(0, 2 * RETENTION_MS)),
    st.tuples(st.just("roll")),
    st.tuples(st.just("compact")),
    st.tuples(st.just("reopen"), st.booleans()),
)


@given(script=st.lists(steps, min_size=5, max_size=60), small_map=st.booleans())
@settings(max_examples=120, deadline=None)
def test_any_history_keeps_the_latest_of_every_key(script: list[tuple], small_map: bool) -> None:  # type: ignore[type-arg]
    with TemporaryDirectory() as directory:
        bench = Bench(directory)
        if small_map:
            bench.cleaner = CleanerConfig(dedupe_buffer_size=24 * 5)  # four keys a round
        for step in [*script, ("roll",), ("compact",), ("reopen", False), ("compact",)]:
            match step:
                case ("append", batch_rows, codec, producer):
                    bench.append(batch_rows, codec, producer)
                case ("txn", batch_rows, codec, producer):
                    bench.append(batch_rows, codec, producer, txn=True)
                case ("end", producer, commit):
                    bench.end(producer, commit)
                case ("wait", ms):
                    bench.clock.advance(ms)
                case ("roll",):
                    bench.log.roll()
                case ("compact",):
                    bench.compact()
                    bench.check()
                case ("reopen", clean):
                    bench.reopen(clean)
                    bench.check()
        bench.log.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(str(tmp_path))
    yield bench
    bench.log.close()


def test_tombstones_stay_for_their_retention_and_then_go(bench: Bench) -> None:
    bench.append([(b"a", b"1"), (b"b", b"1")])
    bench.append([(b"a", None)])
    bench.log.roll()
    bench.compact()
    assert [r.value for r in bench.records().values() if r.key == b"a"] == [None]
    (horizon,) = [h.delete_horizon_ms for h, _ in bench.batches() if h.has_delete_horizon]
    assert horizon == bench.clock.now_ms() + RETENTION_MS
    bench.clock.advance(RETENTION_MS - 1)
    bench.append([(b"c", b"1")])
    bench.log.roll()
    bench.compact()
    assert [r.value for r in bench.records().values() if r.key == b"a"] == [None]
    assert [h.delete_horizon_ms for h, _ in bench.batches() if h.has_delete_horizon] == [horizon]
    bench.clock.advance(1)
    bench.append([(b"d", b"1")])
    bench.log.roll()
    bench.compact()
    assert sorted(r.key or b"" for r in bench.records().values()) == [b"b", b"c", b"d"]
    bench.check()


def test_a_rewritten_batch_keeps_offsets_timestamps_codec_and_sequence(bench: Bench) -> None:
    bench.append([(b"a", b"1"), (b"b", b"2"), (b"c", b"3")], codec=4, producer=1)
    bench.append([(b"a", b"4"), (b"c", b"5")], producer=2)
    bench.log.roll()
    bench.compact()
    first = next(header for header, _ in bench.batches())
    assert (first.base_offset, first.last_offset, first.record_count, first.compression) == (0, 2, 1, 4)
    assert (first.producer_id, first.base_sequence, first.last_sequence) == (1, 0, 2)
    assert first.max_timestamp == bench.written[1].timestamp
    assert list(bench.records()) == [1, 3, 4]


def test_the_last_batch_of_a_live_producer_stays_as_an_empty_header(bench: Bench) -> None:
    bench.append([(b"a", b"1")], producer=7)
    bench.append([(b"a", b"2")], producer=8)
    bench.append([(b"a", b"3")])
    bench.log.roll()
    bench.compact()
    kept = [(h.base_offset, h.record_count, h.producer_id) for h, _ in bench.batches()]
    assert kept == [(0, 0, 7), (1, 0, 8), (2, 1, -1)]
    bench.reopen(clean=False)
    assert bench.producer_facts() == {7: (0, 0, None), 8: (0, 0, None)}
    # Once the producers are forgotten their headers go with the next round.
    bench.log.producers.remove_expired(bench.clock.now_ms() + (1 << 40))
    bench.append([(b"b", b"1")])
    bench.log.roll()
    bench.compact()
    assert [h.base_offset for h, _ in bench.batches() if h.base_offset < 2] == []


def test_aborted_data_goes_first_and_its_marker_after_the_retention(bench: Bench) -> None:
    bench.append([(b"a", b"1")])
    bench.append([(b"a", b"lost")], producer=3, txn=True)
    bench.end(3, commit=False)
    bench.append([(b"b", b"1")], producer=3, txn=True)
    bench.end(3, commit=True)
    bench.append([(b"z", b"z")])
    bench.log.roll()
    bench.compact()
    bench.check()
    assert sorted(bench.records()) == [0, 3, 5]
    # The abort marker stays in this round, because the data were still there when it began.
    assert len(bench.log.aborted_transactions(0, bench.log.log_end_offset)) == 1
    for _ in range(2):
        bench.clock.advance(RETENTION_MS + 1)
        bench.append([(b"z", b"z")])
        bench.log.roll()
        bench.compact()
        bench.check()
    assert bench.log.aborted_transactions(0, bench.log.log_end_offset) == []
    offsets = [h.base_offset for h, _ in bench.batches()]
    assert 2 not in offsets  # the abort marker
    assert 4 in offsets  # the commit marker of data that is still there


def test_an_open_transaction_is_never_touched(bench: Bench) -> None:
    bench.append([(b"a", b"1")])
    bench.append([(b"a", b"2")], producer=3, txn=True)
    bench.log.roll()
    bench.append([(b"a", b"3")])
    bench.log.roll()
    assert bench.compact() == []
    assert sorted(bench.records()) == [0, 1, 2]
    bench.end(3, commit=False)
    bench.log.roll()
    bench.compact()
    assert sorted(bench.records()) == [2]
    bench.check()


def test_a_map_too_small_for_the_log_finishes_over_several_rounds(bench: Bench) -> None:
    bench.cleaner = CleanerConfig(dedupe_buffer_size=24 * 12)
    for n in range(120):
        bench.append([(b"%d" % (n % 40), b"%d" % n)])
    bench.log.roll()
    rounds = 0
    while bench.last_clean != bench.log.active.base_offset:
        assert bench.compact()
        bench.check()
        rounds += 1
        assert rounds < 40
    assert rounds > 2
    assert len(bench.records()) == 40


def test_small_segments_become_few(bench: Bench) -> None:
    for n in range(60):
        bench.append([(b"%d" % n, bytes(60))])
        bench.log.roll()
    before = len(bench.log.segments)
    bench.compact()
    assert len(bench.log.segments) < before / 2
    assert all(segment.size <= bench.config.segment_bytes for segment in bench.log.segments)
    bench.check()
    for offset in range(60):  # the indexes of the new segments lead to every record
        read = bench.log.read(offset, 1, bench.log.log_end_offset)
        assert read.range is not None
        (record, *_) = batch.iter_records(read.range.read())
        assert record.offset == offset


def test_log_append_time_survives(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), **{"message.timestamp.type": "LogAppendTime"})
    bench.append([(b"a", b"1"), (b"b", b"1")])
    bench.clock.advance(5)
    bench.append([(b"a", b"2")])
    bench.log.roll()
    bench.compact()
    assert [(r.offset, r.timestamp) for r in bench.records().values()] == [(1, 1_000_000), (2, 1_000_005)]
    bench.log.close()


def test_stopping_in_the_middle_leaves_no_files(bench: Bench) -> None:
    for _ in range(30):
        bench.append([(b"a", bytes(50))])
    bench.log.roll()
    calls = count()

    def stop(size: int) -> None:
        if next(calls) == 35:
            raise OSError(5, "stop here")

    job = plan_job(examine(bench.log, None, bench.clock.now_ms()), bench.cleaner, bench.clock.now_ms())
    with pytest.raises(OSError, match="stop here"):  # noqa: PT012
        for group in compact(bench.environment, job, stop):
            swap_in(bench.log, group)
    assert [name for name in bench.environment.files.listdir(bench.directory) if name.endswith(".cleaned")] == []
    bench.compact()
    bench.check()


def test_groups_respect_size_index_and_offset_range() -> None:
    def sources(*facts: tuple[int, int]) -> list[Source]:
        return [Source(base, size, 8, 12, 0) for base, size in facts]

    def bases(groups: list[list[Source]]) -> list[list[int]]:
        return [[source.base_offset for source in group] for group in groups]

    some = sources((0, 40), (10, 40), (20, 40), (30, 100), (40, 1))
    assert bases(group_sources(some, 100, 1000, 50)) == [[0, 10], [20], [30], [40]]
    assert bases(group_sources(some, 1000, 24, 50)) == [[0, 10], [20, 30], [40]]
    limit = 1 << 31
    far = sources((0, 1), (10, 1), (limit + 1, 1), (limit + 9, 1), (limit + 20, 0))
    assert bases(group_sources(far, 100, 1000, 1 << 32)) == [[0], [10, limit + 1], [limit + 9, limit + 20]]


def test_the_worker_process_does_the_same(bench: Bench) -> None:
    for n in range(200):
        bench.append([(b"%d" % (n % 7), b"%d" % n)], codec=n % 5, producer=n % 3)
    bench.log.roll()
    bench.log.flush()

    async def run() -> None:
        compactor = ProcessCompactor()
        assert compactor.pid is None
        job = plan_job(examine(bench.log, None, bench.clock.now_ms()), bench.cleaner, bench.clock.now_ms())
        groups: list[CleanedGroup] = []

        def swap(group: CleanedGroup) -> bool:
            swap_in(bench.log, group)
            groups.append(group)
            return True

        assert await compactor.run(job, swap)
        bench.last_clean = groups[-1].end_offset
        assert compactor.pid is not None
        await compactor.close()
        assert compactor.pid is None

    asyncio.run(run())
    bench.check()
    assert len(bench.records()) == 7
