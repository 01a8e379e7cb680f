"""Progress lines on stderr: the first after a while, then at intervals, so that a short audit says nothing."""

from __future__ import annotations

import sys
import time

INTERVAL_S = 5.0


class Progress:
    def __init__(self, step: str, items: int, size: int) -> None:
        self._step = step
        self._items = items
        self._size = size
        self._started = self._last = time.monotonic()

    def at(self, items: int, size: int) -> None:
        now = time.monotonic()
        if now - self._last < INTERVAL_S:
            return
        self._last = now
        rate = ""
        if self._size:
            rate = f", {size / 1e6:.0f} of {self._size / 1e6:.0f} MB, {size / 1e6 / (now - self._started):.0f} MB/s"
        print(f"{self._step}: {items} of {self._items}{rate}", file=sys.stderr, flush=True)
