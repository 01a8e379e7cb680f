"""Where work goes that must not run on the event loop: fsync, deletion, recovery, cold reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class Workers:
    """A bounded pool of threads; results come back as futures of the loop that asked."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads_max: int = 8, name: str = "pylogd-worker") -> None:
        self._loop = loop
        self._threads = ThreadPoolExecutor(threads_max, thread_name_prefix=name)

    def offload(self, fn: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        return self._loop.run_in_executor(self._threads, fn, *args)

    def close(self, wait: bool = True) -> None:
        """Lets what runs finish; what has not started is dropped when `wait` is false."""
        self._threads.shutdown(wait=wait, cancel_futures=not wait)


class InlineWorkers(Workers):
    """For tests: the job runs at once, in the caller; its future is already done."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def offload(self, fn: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self._loop.create_future()
        try:
            future.set_result(fn(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def close(self, wait: bool = True) -> None:
        """Nothing runs between calls."""
