"""Fsyncs of the metadata log: one at a time on a worker, shared by everything that was appended meanwhile.

A full disk may leave no room for the small files that go with a flush. Nothing is lost then, and nobody else could do
better if this node is alone in its quorum or only follows: the flush is tried again until there is room. A leader that
others could replace gives up instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pylogd.controller.quorum.metadata_log import MetadataLog
from pylogd.controller.raft.output import Flush
from pylogd.runtime.workers import Workers
from pylogd.storage.log.flush_plan import FLUSH_RETRY_S, FlushDeferred, FlushPlan


class LogFlushes:
    """`done` is told of every flush that is on stable storage, `failed` of the error that ends it all; `may_wait` says
    whether a full disk is to be waited for."""

    def __init__(
        self,
        log: MetadataLog,
        loop: asyncio.AbstractEventLoop,
        workers: Workers,
        *,
        done: Callable[[Flush], None],
        failed: Callable[[BaseException], None],
        may_wait: Callable[[], bool],
    ) -> None:
        self._log = log
        self._loop = loop
        self._workers = workers
        self._done = done
        self._failed = failed
        self._may_wait = may_wait
        self._wish: Flush | None = None
        self._task: asyncio.Task[None] | None = None

    def request(self, flush: Flush) -> None:
        self._wish = flush
        if self._task is None:
            self._task = self._loop.create_task(self._run())

    async def drain(self) -> None:
        """Waits until nothing is under way."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._wish is not None:
                wish, self._wish = self._wish, None
                plan = self._log.flush_plan()
                if plan.segments and not await self._sync(plan):
                    self._wish = self._wish or wish
                    continue
                self._done(wish)
        except Exception as error:
            self._failed(error)
        finally:
            self._task = None

    async def _sync(self, plan: FlushPlan) -> bool:
        """False when there was no room; it is to be tried again."""
        try:
            await self._workers.offload(plan.run)
        except FlushDeferred as deferred:
            if not self._may_wait():
                raise
            self._log.log.defer_flush(plan, deferred)
            await asyncio.sleep(FLUSH_RETRY_S)
            return False
        self._log.flushed(plan)
        return True
