"""Who waits for the quorum: for the lead, for a commit, or for anything to change."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol


class LeadershipListener(Protocol):
    """Who acts while this node leads."""

    def lead(self, epoch: int) -> None:
        """This node leads, and everything before its epoch is committed and was handed over."""

    def resign(self) -> None:
        """It leads no more: what was appended and not committed may be gone."""

    def failed(self, error: BaseException) -> None:
        """The quorum's log or protocol broke; nothing more will come."""


class CommitWaiters:
    """Who waits for an offset to be committed, in the order of the offsets."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def wait(self, offset: int) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((offset, future))
        return future

    def reached(self, high_watermark: int) -> None:
        while self._waiting and self._waiting[0][0] < high_watermark:
            future = self._waiting.popleft()[1]
            if not future.done():
                future.set_result(None)

    def fail(self, error: BaseException) -> None:
        """None of it will be committed, as far as is known here."""
        waiting, self._waiting = self._waiting, deque()
        for _, future in waiting:
            if not future.done():
                future.set_exception(error)


class ChangeWaiters:
    """Who waits for the next change of role, epoch, leader or high watermark."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[asyncio.Future[None]] = []

    def wait(self) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(future)
        return future

    def tell(self) -> None:
        if not self._waiting:
            return
        told, self._waiting = self._waiting, []
        for future in told:
            if not future.done():
                future.set_result(None)

    async def until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Waits for what a change brings about; False when it takes too long."""
        deadline = self._loop.time() + timeout_s
        while not condition():
            left = deadline - self._loop.time()
            if left <= 0:
                return False
            await asyncio.wait([self.wait()], timeout=left)
        return True
