"""The workers' twin on virtual time: a job begins a moment after it was given away, runs in one piece, and its result
arrives a moment later, so that other events fall between an append, its fsync and the news of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

from pylogd.runtime.workers import Workers

T = TypeVar("T")


class SimulatedWorkers(Workers):
    def __init__(self, loop: asyncio.AbstractEventLoop, chance: Random) -> None:
        self._loop = loop
        self._chance = chance
        #: How many times slower than usual the disk is.
        self.slowness = 1.0

    def _moment_s(self) -> float:
        return self._chance.random() ** 4 * 0.01 * self.slowness

    def offload(self, fn: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self._loop.create_future()

        def run() -> None:
            try:
                result = fn(*args)
            except Exception as error:
                self._loop.call_later(self._moment_s(), failed, error)
            else:
                self._loop.call_later(self._moment_s(), finished, result)

        def finished(result: T) -> None:
            if not future.done():
                future.set_result(result)

        def failed(error: Exception) -> None:
            if not future.done():
                future.set_exception(error)

        self._loop.call_later(self._moment_s(), run)
        return future

    def close(self, wait: bool = True) -> None:
        """Nothing runs between calls."""
