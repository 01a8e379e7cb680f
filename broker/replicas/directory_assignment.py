"""Telling the controller which log directory a replica is in (AssignReplicasToDirs).

With one directory the controller knows already. With several, this broker chooses, and says so soon after; until then
the replica's directory is "unassigned". What fails is sent again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from pylogd.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from pylogd.config.host import Host
    from pylogd.rpc.controller_channel import Channel

logger = logging.getLogger(__name__)

PARTITIONS_PER_REQUEST_MAX = 2000
RETRY_SECONDS = 0.5


class DirectoryAssignment:
    """Assignments that the controller has not confirmed yet."""

    def __init__(self, host: Host, channel: Channel, broker_epoch: Callable[[], int]) -> None:
        self._host = host
        self._channel = channel
        self._broker_epoch = broker_epoch
        self._pending: dict[tuple[bytes, int], bytes] = {}
        self._task: asyncio.Task[None] | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing is left to tell."""
        return self._task is None

    def assign(self, topic_id: bytes, index: int, directory_id: bytes) -> None:
        self._pending[(topic_id, index)] = directory_id
        if self._task is None:
            self._task = self._host.loop.create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while self._pending:
                if self._broker_epoch() < 0 or not await self._send():
                    await asyncio.sleep(RETRY_SECONDS)
        finally:
            self._task = None

    async def _send(self) -> bool:
        """One request; False when it should be tried again later."""
        from pylogd.protocol.messages import assign_replicas_to_dirs as m

        sent = dict(list(self._pending.items())[:PARTITIONS_PER_REQUEST_MAX])
        directories: dict[bytes, dict[bytes, list[int]]] = {}
        for (topic_id, index), directory_id in sent.items():
            directories.setdefault(directory_id, {}).setdefault(topic_id, []).append(index)
        request = m.AssignReplicasToDirsRequest(
            broker_id=self._host.broker_id,
            broker_epoch=self._broker_epoch(),
            directories=[
                m.RequestDirectoryData(
                    id=directory_id,
                    topics=[
                        m.RequestTopicData(
                            topic_id=topic_id,
                            partitions=[m.RequestPartitionData(partition_index=index) for index in indexes],
                        )
                        for topic_id, indexes in topics.items()
                    ],
                )
                for directory_id, topics in directories.items()
            ],
        )
        response = await self._channel.send(request)
        if response.error_code != ErrorCode.NONE:
            logger.warning("assigning replicas to directories failed: %s", ErrorCode(response.error_code).name)
            return False
        # A partition that is refused is unknown or no longer here: there is nothing to assign any more.
        for key, directory_id in sent.items():
            if self._pending.get(key) == directory_id:
                del self._pending[key]
        return True
