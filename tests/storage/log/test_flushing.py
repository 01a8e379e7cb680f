"""When logs become durable: group commit, the scheduler, recovery, a roll."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pylogd.runtime.clock import ManualClock
from pylogd.runtime.files import FileSystem
from pylogd.runtime.simulated.simulated_files import SimulatedFileSystem
from pylogd.runtime.workers import Workers
from pylogd.storage.log_config import LogConfig
from support.logs import append, batch
from support.managers import manager, run, settle


def test_concurrent_appends_share_one_fsync(tmp_path: Path) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        workers = Workers(loop, 2)
        logs = manager(FileSystem(), [str(tmp_path)], workers=workers, config=LogConfig(flush_messages=1))
        log = logs.create("t", 0)
        moves: list[int] = []
        reached = asyncio.Event()

        def moved(flushed: object) -> None:
            moves.append(log.flushed_offset)
            if log.flushed_offset == 100:
                reached.set()

        log.flush_listeners.append(moved)
        for _ in range(100):
            append(log, batch())
        await asyncio.wait_for(reached.wait(), 20)
        # The first fsync covers what was there when it began, the second one everything else.
        assert moves == [1, 100]
        await logs.close()
        workers.close()

    run(main)


def test_the_scheduler_flushes_what_is_old() -> None:
    files = SimulatedFileSystem()

    async def main() -> None:
        logs = manager(files, ["/d"], config=LogConfig(flush_ms=1000))
        log = logs.create("t", 0)
        append(log, batch())
        await logs.maintenance.flush_dirty_logs()
        assert log.flushed_offset == 0
        assert isinstance(logs.clock, ManualClock)
        logs.clock.advance(1000)
        await logs.maintenance.flush_dirty_logs()
        await settle()
        assert log.flushed_offset == 1
        await logs.close()

    run(main)


def test_recovered_logs_that_acknowledge_by_flush_are_flushed() -> None:
    files = SimulatedFileSystem()
    config = LogConfig(segment_bytes=300, flush_messages=1)

    async def main() -> None:
        logs = manager(files, ["/d"])
        log = logs.create("t", 0)
        for _ in range(10):
            append(log, batch())
        logs.abandon()
        logs = manager(files, ["/d"], config=config)
        await logs.recover()
        await settle()
        recovered = logs.get("t", 0)
        assert recovered is not None
        assert recovered.flushed_offset == 10
        assert not any(segment.indexes_unsynced for segment in recovered.segments.snapshot()[:-1])
        await logs.close()

    run(main)


def test_a_roll_makes_the_closed_segment_durable() -> None:
    files = SimulatedFileSystem()

    async def main() -> None:
        logs = manager(files, ["/d"])
        log = logs.create("t", 0)
        for _ in range(40):
            append(log, batch(size=100))
        await settle()
        assert log.flushed_offset == log.active.base_offset > 0
        await logs.close()

    run(main)
