"""Choosing logs to compact, and what becomes of a round when the world changes under it."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pylogd.runtime.workers import InlineWorkers, Workers
from pylogd.storage import checkpoint_file
from pylogd.storage.compaction.cleaner import CleanerConfig, LogCleaner
from pylogd.storage.compaction.compaction_job import CleanedGroup, CompactionJob
from pylogd.storage.compaction.compactor import CompactionFailed, InlineCompactor, ProcessCompactor
from pylogd.storage.compaction.dirtiness import examine
from support.compaction import Bench

Scenario = Callable[[LogCleaner], Coroutine[Any, Any, None]]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(str(tmp_path))


def dirty(bench: Bench, batches: int = 20) -> None:
    for n in range(batches):
        bench.append([(b"%d" % (n % 3), b"%d" % n * 10)])
    bench.log.roll()


def configure(bench: Bench, **changes: Any) -> None:
    bench.log.update_config(replace(bench.log.config, **changes))


def run(bench: Bench, scenario: Scenario, **options: Any) -> None:
    async def main() -> None:
        workers = InlineWorkers(asyncio.get_running_loop())
        options.setdefault("compactor", lambda: InlineCompactor(bench.environment))
        cleaner = LogCleaner(lambda: [bench.log], bench.environment.files, bench.clock, workers, **options)
        await scenario(cleaner)
        await cleaner.close()

    asyncio.run(main())


async def until(probe: Callable[[], bool]) -> None:
    for _ in range(1500):
        if probe():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not come true")


def table(bench: Bench) -> dict[tuple[str, int], int]:
    path = f"{os.path.dirname(bench.directory)}/{checkpoint_file.CLEANER_OFFSET}"
    return checkpoint_file.read_offsets(bench.environment.files, path)


# -- examining


def test_the_dirty_part_lies_between_the_checkpoint_and_the_active_segment(bench: Bench) -> None:
    assert examine(bench.log, None, 0).total_bytes == 0
    dirty(bench)
    segments = list(bench.log.segments)
    target = examine(bench.log, None, bench.clock.now_ms())
    assert (target.first_dirty_offset, target.first_uncleanable_offset) == (0, bench.log.active.base_offset)
    assert (target.ratio, target.clean_bytes, target.due) == (1.0, 0, True)
    target = examine(bench.log, segments[1].base_offset, bench.clock.now_ms())
    assert target.clean_bytes == segments[0].size
    assert target.cleanable_bytes == sum(segment.size for segment in segments[1:-1])
    target = examine(bench.log, segments[-1].base_offset, bench.clock.now_ms())
    assert (target.ratio, target.due) == (0.0, False)


def test_the_ratio_decides(bench: Bench) -> None:
    dirty(bench)
    segments = list(bench.log.segments)
    last_clean = segments[-2].base_offset
    ratio = examine(bench.log, last_clean, 0).ratio
    assert 0 < ratio < 0.5
    configure(bench, min_cleanable_dirty_ratio=ratio)
    assert not examine(bench.log, last_clean, 0).due
    configure(bench, min_cleanable_dirty_ratio=ratio - 0.01)
    assert examine(bench.log, last_clean, 0).due


@pytest.mark.parametrize("bad", [-5, 10_000])
def test_a_checkpoint_outside_the_log_is_worth_nothing(bench: Bench, bad: int) -> None:
    dirty(bench)
    assert examine(bench.log, bad, 0).first_dirty_offset == 0


def test_the_last_stable_offset_bounds_it(bench: Bench) -> None:
    dirty(bench, 10)
    first = list(bench.log.segments)[1]
    bench.log.high_watermark = first.base_offset + 1
    target = examine(bench.log, None, 0)
    assert target.first_uncleanable_offset == first.base_offset
    assert target.cleanable_bytes == bench.log.segments.first.size


def test_young_segments_wait_for_the_minimum_lag(bench: Bench) -> None:
    dirty(bench, 6)
    boundary = bench.log.active.base_offset
    bench.clock.advance(500)
    dirty(bench, 6)
    now = bench.clock.now_ms()
    configure(bench, min_compaction_lag_ms=400)
    assert examine(bench.log, None, now).first_uncleanable_offset == boundary
    assert examine(bench.log, None, now + 401).first_uncleanable_offset == bench.log.active.base_offset
    configure(bench, min_compaction_lag_ms=10_000)
    assert not examine(bench.log, None, now).due


def test_old_segments_do_not_wait_for_the_ratio(bench: Bench) -> None:
    dirty(bench)
    last_clean = list(bench.log.segments)[-2].base_offset
    now = bench.clock.now_ms()
    configure(bench, max_compaction_lag_ms=1000)
    assert not examine(bench.log, last_clean, now + 999).due
    assert examine(bench.log, last_clean, now + 1001).due
    assert not examine(bench.log, bench.log.active.base_offset, now + 1001).due


# -- cleaning


def test_a_round_is_checkpointed_and_not_repeated(bench: Bench) -> None:
    dirty(bench)

    async def scenario(cleaner: LogCleaner) -> None:
        target = cleaner.choose()
        assert target is not None
        assert cleaner.max_dirty_ratio == 1.0
        assert await cleaner.clean(target, InlineCompactor(bench.environment))
        assert table(bench) == {("t", 0): bench.log.active.base_offset}
        assert cleaner.choose() is None
        directory = os.path.dirname(bench.directory)
        for offset in (7, 9):
            cleaner.truncated(bench.log, offset)
            target = cleaner.choose()
            assert target is not None
            assert target.first_dirty_offset == 7
        cleaner.start()
        await until(lambda: table(bench) == {("t", 0): bench.log.active.base_offset})
        cleaner.forget("t", 0, directory)
        cleaner.uncleanable.add(("t", 0))
        await until(lambda: table(bench) == {})

    run(bench, scenario)
    assert len(bench.records()) == 3


def test_both_policies_work_on_one_log(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    configure(bench, cleanup_policy=("compact", "delete"), retention_ms=60_000)
    dirty(bench)

    async def scenario(cleaner: LogCleaner) -> None:
        for _ in range(2):
            target = cleaner.choose()
            assert target is not None
            assert await cleaner.clean(target, InlineCompactor(bench.environment))
            assert len(bench.records()) == 3
            # What was compacted and is old goes as well; what comes after it starts dirty at the new log start.
            bench.clock.advance(60_001)
            assert bench.log.delete_old_segments() > 0
            assert bench.records() == {}
            assert bench.log.log_start_offset == bench.log.log_end_offset
            dirty(bench)
        bench.log.delete_records_before(bench.log.log_end_offset)
        assert bench.log.delete_old_segments() > 0
        dirty(bench)
        target = cleaner.choose()
        assert target is not None
        assert target.first_dirty_offset == bench.log.log_start_offset

    run(bench, scenario)
    assert "outside the log" not in caplog.text


def test_the_checkpoint_of_an_earlier_life_is_read(bench: Bench) -> None:
    dirty(bench)
    path = f"{os.path.dirname(bench.directory)}/{checkpoint_file.CLEANER_OFFSET}"
    checkpoint_file.write_offsets(
        bench.environment.files, path, {("t", 0): bench.log.active.base_offset, ("gone", 1): 4}
    )

    async def scenario(cleaner: LogCleaner) -> None:
        assert cleaner.choose() is None
        dirty(bench, 40)
        target = cleaner.choose()
        assert target is not None
        await cleaner.clean(target, InlineCompactor(bench.environment))
        assert table(bench)["gone", 1] == 4

    run(bench, scenario)


def test_only_open_compacted_logs_are_chosen_the_dirtiest_first(tmp_path: Path) -> None:
    benches = [Bench(str(tmp_path / name)) for name in "abcd"]
    for n, one in enumerate(benches):
        one.log.topic = f"t{n}"
        dirty(one)
    configure(benches[0], cleanup_policy=("delete",))
    benches[1].log.offline = True

    async def main() -> None:
        first = benches[0]
        workers = InlineWorkers(asyncio.get_running_loop())
        cleaner = LogCleaner(lambda: [b.log for b in benches], first.environment.files, first.clock, workers)
        directory = os.path.dirname(benches[2].directory)
        clean_to = list(benches[2].log.segments)[1].base_offset
        path = f"{directory}/{checkpoint_file.CLEANER_OFFSET}"
        checkpoint_file.write_offsets(first.environment.files, path, {("t2", 0): clean_to})
        target = cleaner.choose()
        assert target is not None
        assert target.log is benches[3].log
        cleaner.in_progress.add(("t3", 0))
        target = cleaner.choose()
        assert target is not None
        assert target.log is benches[2].log
        cleaner.uncleanable.add(("t2", 0))
        assert cleaner.choose() is None
        benches.pop()
        benches.pop()
        assert cleaner.choose() is None
        assert cleaner.uncleanable == set()

    asyncio.run(main())


class Meddler(InlineCompactor):
    """Something happens to the log between the work and the swap."""

    def __init__(self, bench: Bench, meddle: Callable[[], object]) -> None:
        super().__init__(bench.environment)
        self._meddle = meddle

    async def run(self, job: CompactionJob, swap: Callable[[CleanedGroup], bool]) -> bool:
        def late(group: CleanedGroup) -> bool:
            self._meddle()
            return swap(group)

        return await super().run(job, late)


@pytest.mark.parametrize("what", ["truncated", "started", "closed", "offline"])
def test_nothing_is_swapped_into_a_log_that_changed(bench: Bench, what: str) -> None:
    dirty(bench)
    changes: dict[str, Callable[[], object]] = {
        "truncated": lambda: bench.log.truncate_to(15),
        "started": lambda: bench.log.delete_records_before(4),
        "closed": lambda: setattr(bench.log, "closed", True),
        "offline": lambda: setattr(bench.log, "offline", True),
    }

    async def scenario(cleaner: LogCleaner) -> None:
        target = cleaner.choose()
        assert target is not None
        assert not await cleaner.clean(target, Meddler(bench, changes[what]))
        assert cleaner.uncleanable == cleaner.in_progress == set()
        assert table(bench) == {}

    run(bench, scenario)
    assert len(bench.records()) >= 15
    if what in ("truncated", "started"):
        names = bench.environment.files.listdir(bench.directory)
        assert not [name for name in names if name.endswith(".cleaned")]


class Broken(InlineCompactor):
    def __init__(self, bench: Bench, error: Exception) -> None:
        super().__init__(bench.environment)
        self._error = error

    async def run(self, job: CompactionJob, swap: Callable[[CleanedGroup], bool]) -> bool:
        raise self._error


def test_failures(bench: Bench) -> None:
    dirty(bench)

    async def scenario(cleaner: LogCleaner) -> None:
        cleaner.config.backoff_ms = 0
        target = cleaner.choose()
        assert target is not None
        assert not await cleaner.clean(target, Broken(bench, OSError(errno.ENOSPC, "full")))
        assert not bench.log.offline
        assert not cleaner.uncleanable
        assert not await cleaner.clean(target, Broken(bench, CompactionFailed("garbage")))
        assert cleaner.uncleanable == {("t", 0)}
        assert cleaner.choose() is None
        assert not await cleaner.clean(target, Broken(bench, OSError(errno.EIO, "bad disk")))
        assert bench.log.offline

    run(bench, scenario)


# -- with real processes


def test_the_loop_compacts_and_lets_its_process_go(bench: Bench) -> None:
    dirty(bench, 60)
    bench.log.flush()
    compactors: list[ProcessCompactor] = []

    def make() -> ProcessCompactor:
        compactors.append(ProcessCompactor())
        return compactors[-1]

    async def scenario(cleaner: LogCleaner) -> None:
        cleaner.start()
        await until(lambda: table(bench) == {("t", 0): bench.log.active.base_offset})
        await until(lambda: compactors[0].pid is None)
        dirty(bench, 90)
        cleaner.wake()
        await until(lambda: table(bench) == {("t", 0): bench.log.active.base_offset})

    run(bench, scenario, compactor=make)
    assert len(compactors) == 1
    assert len(bench.records()) == 3
    bench.last_clean = bench.log.active.base_offset
    bench.check()


def test_a_log_with_damaged_bytes_is_left_alone(bench: Bench) -> None:
    dirty(bench)
    bench.log.flush()
    segment = bench.log.segments.first
    segment.file.pwrite(b"\x7f", 16)  # the magic byte

    async def scenario(cleaner: LogCleaner) -> None:
        target = cleaner.choose()
        assert target is not None
        compactor = ProcessCompactor()
        assert not await cleaner.clean(target, compactor)
        assert cleaner.uncleanable == {("t", 0)}
        await compactor.close()

    run(bench, scenario)
    names = bench.environment.files.listdir(bench.directory)
    assert not [name for name in names if name.endswith(".cleaned")]


def test_a_killed_worker_does_not_hurt_the_log(bench: Bench) -> None:
    dirty(bench, 40)
    bench.log.flush()

    async def scenario(cleaner: LogCleaner) -> None:
        compactor = ProcessCompactor()

        class Killer(ProcessCompactor):
            async def run(self, job: CompactionJob, swap: Callable[[CleanedGroup], bool]) -> bool:
                def kill(group: CleanedGroup) -> bool:
                    assert compactor.pid is not None
                    os.kill(compactor.pid, signal.SIGKILL)
                    return swap(group)

                return await compactor.run(job, kill)

        target = cleaner.choose()
        assert target is not None
        assert not await cleaner.clean(target, Killer())
        assert cleaner.uncleanable == {("t", 0)}
        bench.check()
        # Its process is replaced by a new one when there is work again.
        cleaner.uncleanable.clear()
        target = cleaner.choose()
        assert target is not None
        assert await cleaner.clean(target, compactor)
        await compactor.close()

    run(bench, scenario)
    assert len(bench.records()) == 3


def test_a_round_given_up_takes_its_process_along(bench: Bench) -> None:
    dirty(bench, 40)
    bench.log.flush()
    compactor = ProcessCompactor()

    class Slow(ProcessCompactor):
        async def run(self, job: CompactionJob, swap: Callable[[CleanedGroup], bool]) -> bool:
            job.io_bytes_per_second = 1.0  # the worker sleeps for an hour over its first batch
            return await compactor.run(job, swap)

    async def scenario(cleaner: LogCleaner) -> None:
        cleaner.start()
        await until(lambda: compactor.pid is not None)
        pid = compactor.pid
        assert pid is not None
        await cleaner.close()
        assert compactor.pid is None
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        assert cleaner.in_progress == set()

    run(bench, scenario, compactor=Slow)
    bench.check()


def test_the_rate_is_handed_to_the_worker(bench: Bench) -> None:
    dirty(bench)
    seen: list[CompactionJob] = []

    class Watcher(InlineCompactor):
        async def run(self, job: CompactionJob, swap: Callable[[CleanedGroup], bool]) -> bool:
            seen.append(job)
            return await super().run(job, swap)

    async def scenario(cleaner: LogCleaner) -> None:
        target = cleaner.choose()
        assert target is not None
        await cleaner.clean(target, Watcher(bench.environment))

    config = CleanerConfig(threads=2, io_max_bytes_per_second=1000.0, dedupe_buffer_size=4800)
    run(bench, scenario, config=config)
    assert (seen[0].io_bytes_per_second, seen[0].map_bytes) == (500.0, 2400)


def test_worker_threads_may_write_the_checkpoint(bench: Bench) -> None:
    dirty(bench)

    async def main() -> None:
        workers = Workers(asyncio.get_running_loop(), threads_max=1)
        cleaner = LogCleaner(lambda: [bench.log], bench.environment.files, bench.clock, workers)
        target = cleaner.choose()
        assert target is not None
        assert await cleaner.clean(target, InlineCompactor(bench.environment))
        workers.close()

    asyncio.run(main())
    assert table(bench) == {("t", 0): bench.log.active.base_offset}
