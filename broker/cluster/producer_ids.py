"""Producer ids for idempotent producers: taken from blocks of a thousand that the controller gives out.

The next block is asked for when nine tenths of this one are used, so that no producer waits. Ids left over in a block
when the broker stops are lost, as in Kafka.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from pylogd.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from pylogd.config.host import Host
    from pylogd.rpc.controller_channel import Channel

logger = logging.getLogger(__name__)

_PREFETCH = 0.9


class ProducerIds:
    """Hands out ids; one request to the controller at a time."""

    def __init__(self, host: Host, channel: Channel, broker_epoch: Callable[[], int]) -> None:
        self._host = host
        self._channel = channel
        self._broker_epoch = broker_epoch
        self._next = 0
        self._end = 0
        self._prefetch_at = 0
        self._following: tuple[int, int] | None = None
        self._request: asyncio.Task[None] | None = None

    async def next(self) -> int:
        """COORDINATOR_LOAD_IN_PROGRESS when the controller gives no block: the producer tries again."""
        await self.ready()
        given = self.take()
        if given is None:
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            raise KafkaError(code, "The controller gave no block of producer ids")
        return given

    async def ready(self) -> None:
        """Returns when there is an id to take, or the controller gave none."""
        if self._next >= self._end and self._following is None:
            await asyncio.shield(self._start())

    def take(self) -> int | None:
        """An id if there is one at hand."""
        if self._next >= self._end:
            if self._following is None:
                return None
            first, count = self._following
            self._following = None
            self._next, self._end = first, first + count
            self._prefetch_at = first + int(count * _PREFETCH)
        given = self._next
        self._next += 1
        if self._next >= self._prefetch_at and self._following is None:
            self.prefetch()
        return given

    def prefetch(self) -> None:
        """Have the next block fetched."""
        self._start()

    def _start(self) -> asyncio.Task[None]:
        if self._request is None:
            self._request = self._host.loop.create_task(self._fetch())
        return self._request

    async def _fetch(self) -> None:
        from pylogd.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest

        try:
            request = AllocateProducerIdsRequest(broker_id=self._host.broker_id, broker_epoch=self._broker_epoch())
            block = await self._channel.send(request)
            if block.error_code:
                raise KafkaError(ErrorCode(block.error_code))  # type: ignore[call-arg]
            if block.producer_id_len > 0:
                self._following = (block.producer_id_start, block.producer_id_len)
        except (KafkaError, OSError) as failure:
            logger.warning("the controller gave no block of producer ids: %s", failure)
        finally:
            self._request = None
