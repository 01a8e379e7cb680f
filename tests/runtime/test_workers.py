"""Jobs leave the loop's thread and come back to it; the twin runs them in place. Clocks move as they are told."""

from __future__ import annotations

import asyncio
import threading

import pytest
from pylogd.runtime.clock import Clock, ManualClock
from pylogd.runtime.workers import InlineWorkers, Workers


def fail() -> None:
    raise OSError("broken")


def test_jobs_run_in_threads_and_results_come_back() -> None:
    async def main() -> None:
        workers = Workers(asyncio.get_running_loop(), threads_max=2)
        assert await workers.offload(threading.get_ident) != threading.get_ident()
        assert await workers.offload(pow, 2, 5) == 32
        with pytest.raises(OSError, match="broken"):
            await workers.offload(fail)
        workers.close()

    asyncio.run(main())


def test_the_twin_runs_in_place() -> None:
    async def main() -> None:
        workers = InlineWorkers(asyncio.get_running_loop())
        future = workers.offload(threading.get_ident)
        assert future.done()
        assert await future == threading.get_ident()
        with pytest.raises(OSError, match="broken"):
            await workers.offload(fail)
        workers.close()

    asyncio.run(main())


def test_clocks() -> None:
    real = Clock()
    assert real.now_ms() > 1_600_000_000_000
    before = real.monotonic_ms()
    assert real.monotonic_ms() >= before
    manual = ManualClock(1_000)
    manual.advance(5)
    assert (manual.now_ms(), manual.monotonic_ms()) == (1_005, 5)
    manual.set_now_ms(7)
    assert (manual.now_ms(), manual.monotonic_ms()) == (7, 5)
