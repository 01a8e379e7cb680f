"""Waiting for something that happens elsewhere, with a limit: no test sleeps and hopes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(probe: Callable[[], T], *, timeout_s: float = 30, pause_s: float = 0.05, what: str = "") -> T:
    """The first truthy answer of the probe; fails after the time-out with the last one."""
    deadline = time.monotonic() + timeout_s
    while True:
        answer = probe()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"still {answer!r} after {timeout_s} s {what}")
        time.sleep(pause_s)
