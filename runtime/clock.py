"""The only source of time. Everything else takes a `Clock`, so that a test or the simulator can own it."""

from __future__ import annotations

import time


class Clock:
    """Wall time for timestamps that leave the process, monotonic time for intervals."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class ManualClock(Clock):
    """A clock that moves only when told to; wall and monotonic time advance together."""

    __slots__ = ("_monotonic_ms", "_now_ms")

    def __init__(self, now_ms: int = 1_700_000_000_000, monotonic_ms: int = 0) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def advance(self, ms: int) -> None:
        self._now_ms += ms
        self._monotonic_ms += ms

    def set_now_ms(self, now_ms: int) -> None:
        """Moves wall time alone, as an operator or NTP would."""
        self._now_ms = now_ms
