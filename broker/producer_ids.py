"""Producer ids for idempotent producers: taken from blocks of a thousand that the controller gives out.

The next block is asked for when nine tenths of this one are used, so that no producer waits. Ids left over in a block
when the broker stops are lost, as in Kafka.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from pylogd.protocol.errors import ErrorCode, KafkaError

_LOGGER = logging.getLogger("pylogd.broker")

#: Sends one AllocateProducerIds request and gives (first id, count).
AllocateBlock = Callable[[], Awaitable[tuple[int, int]]]
_PREFETCH = 0.9


class ProducerIds:
    """Hands out ids; one request to the controller at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, allocate: AllocateBlock) -> None:
        self._loop = loop
        self._allocate = allocate
        self._next = 0
        self._end = 0
        self._prefetch_at = 0
        self._following: tuple[int, int] | None = None
        self._request: asyncio.Task[Any] | None = None

    async def next(self) -> int:
        """COORDINATOR_LOAD_IN_PROGRESS when the controller gives no block: the producer tries again."""
        while self._next >= self._end:
            if self._following is not None:
                self._take(self._following)
                self._following = None
                break
            await asyncio.shield(self._start())
            if self._following is None and self._next >= self._end:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The controller gave no block of producer ids")
        given = self._next
        self._next += 1
        if self._next >= self._prefetch_at and self._following is None:
            self._start()
        return given

    def _take(self, block: tuple[int, int]) -> None:
        first, count = block
        self._next, self._end = first, first + count
        self._prefetch_at = first + int(count * _PREFETCH)

    def _start(self) -> asyncio.Task[Any]:
        if self._request is None:
            self._request = self._loop.create_task(self._fetch())
        return self._request

    async def _fetch(self) -> None:
        try:
            first, count = await self._allocate()
            if count > 0:
                self._following = (first, count)
        except (KafkaError, OSError) as failure:
            _LOGGER.warning("the controller gave no block of producer ids: %s", failure)
        finally:
            self._request = None
