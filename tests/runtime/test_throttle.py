from __future__ import annotations

from pylogd.runtime.clock import ManualClock
from pylogd.runtime.throttle import Throttle


def test_the_average_stays_at_the_rate() -> None:
    clock = ManualClock()
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.advance(round(seconds * 1000))

    spend = Throttle(1000.0, clock, sleep)
    for _ in range(50):
        spend(100)
        clock.advance(10)
    assert abs(clock.monotonic_ms() - 5000) <= 300
    assert sum(slept) > 4


def test_slow_work_is_not_slowed_down() -> None:
    clock = ManualClock()
    spend = Throttle(1000.0, clock, lambda seconds: (_ for _ in ()).throw(AssertionError("slept")))
    for _ in range(50):
        clock.advance(101)
        spend(100)


def test_no_limit_means_no_waiting() -> None:
    spend = Throttle(float("inf"), ManualClock(), lambda seconds: (_ for _ in ()).throw(AssertionError("slept")))
    spend(1 << 60)
