"""Keeps I/O below a rate by sleeping: for worker processes and threads, never for the event loop."""

from __future__ import annotations

import time
from collections.abc import Callable

from pylogd.runtime.clock import Clock

_CHECK_MS = 300


class Throttle:
    """Call it with every amount moved. Over each stretch of at least 300 ms the average stays at or below the rate."""

    __slots__ = ("_bytes", "_clock", "_rate", "_sleep", "_started_ms")

    def __init__(
        self, bytes_per_second: float, clock: Clock | None = None, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._rate = bytes_per_second
        self._clock = clock if clock is not None else Clock()
        self._sleep = sleep
        self._started_ms = self._clock.monotonic_ms()
        self._bytes = 0

    def __call__(self, size: int) -> None:
        self._bytes += size
        elapsed_ms = self._clock.monotonic_ms() - self._started_ms
        due_ms = self._bytes * 1000 / self._rate
        if elapsed_ms < _CHECK_MS and due_ms < _CHECK_MS:
            return
        if due_ms > elapsed_ms:
            self._sleep((due_ms - elapsed_ms) / 1000)
        self._started_ms = self._clock.monotonic_ms()
        self._bytes = 0
