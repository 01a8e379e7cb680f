"""Taking changes of in-sync replicas to the controller (AlterPartition), and looking for followers that fell behind.

All proposals that wait go in one request, and one request is on its way at a time. A proposal is sent until it is
answered. The partition ignores an answer that newer metadata has made pointless.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from pylogd.protocol.errors import ErrorCode
from pylogd.replication import in_sync

if TYPE_CHECKING:
    from pylogd.config.host import Host
    from pylogd.protocol.messages.alter_partition import (
        AlterPartitionRequest,
        AlterPartitionResponse,
        RequestTopicData,
    )
    from pylogd.replication.in_sync import Proposal
    from pylogd.replication.partition import Partition
    from pylogd.replication.replicas import Replicas
    from pylogd.rpc.controller_channel import Channel

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.05
#: Leaderships looked at in one turn of the event loop.
_SLICE = 500


class IsrChanges:
    """Those of all partitions this broker leads. `broker_epoch` gives the epoch it is registered with."""

    def __init__(self, host: Host, channel: Channel, broker_epoch: Callable[[], int]) -> None:
        self._host = host
        self._channel = channel
        self._broker_epoch = broker_epoch
        self._waiting: dict[tuple[bytes, int], tuple[Partition, Proposal]] = {}
        self._sender: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._closed = False

    def watch(self, replicas: Replicas) -> None:
        """From now on followers that fall behind are noticed."""
        self._watcher = self._host.loop.create_task(self._watch(replicas))

    async def stop(self) -> None:
        self._closed = True
        for task in (self._sender, self._watcher):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    # -- proposals

    def propose(self, partition: Partition, proposal: Proposal) -> None:
        """A later proposal for the same partition takes the place of an earlier one."""
        self._waiting[(partition.topic_id, partition.index)] = (partition, proposal)
        if self._sender is None and not self._closed:
            self._sender = self._host.loop.create_task(self._send_all())

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, {}
                # Newer metadata may have made some of them pointless.
                sent = {key: (part, proposal) for key, (part, proposal) in waiting.items() if part.proposal is proposal}
                if not sent:
                    continue
                try:
                    response = await self._channel.send(self._request(sent))
                    code = ErrorCode(response.error_code)
                    pause = code is not ErrorCode.NONE or self._answered(sent, response)
                    if code is not ErrorCode.NONE:
                        logger.warning("changing in-sync replicas failed with %s", code.name)
                except Exception:
                    logger.exception("changing in-sync replicas failed unexpectedly")
                    pause = True
                # What was not answered is asked again: a proposal that is forgotten would stay pending for ever.
                self._waiting = {**sent, **self._waiting}
                if pause:
                    await asyncio.sleep(RETRY_SECONDS)
        finally:
            self._sender = None

    def _request(self, sent: dict[tuple[bytes, int], tuple[Partition, Proposal]]) -> AlterPartitionRequest:
        from pylogd.protocol.messages import alter_partition as m

        topics: dict[bytes, RequestTopicData] = {}
        for (topic_id, index), (_, proposal) in sent.items():
            topic = topics.setdefault(topic_id, m.RequestTopicData(topic_id=topic_id, partitions=[]))
            topic.partitions.append(
                m.RequestPartitionData(
                    partition_index=index,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=[m.BrokerState(broker, epoch) for broker, epoch in proposal.isr],
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return m.AlterPartitionRequest(
            broker_id=self._host.broker_id, broker_epoch=self._broker_epoch(), topics=list(topics.values())
        )

    def _answered(
        self, sent: dict[tuple[bytes, int], tuple[Partition, Proposal]], response: AlterPartitionResponse
    ) -> bool:
        """Tells the partitions; True when one of them asks the same again, which needs a pause."""
        again = False
        for topic in response.topics:
            for data in topic.partitions:
                entry = sent.pop((bytes(topic.topic_id), data.partition_index), None)
                if entry is None:
                    continue
                partition, proposal = entry
                code = ErrorCode(data.error_code)
                if code is ErrorCode.NONE:
                    in_sync.accepted(partition, proposal, tuple(data.isr), data.leader_epoch, data.partition_epoch)
                    change = "shrank" if proposal.joins is None else "grew"
                    logger.info("%s: in-sync replicas %s to %s", partition.name, change, list(data.isr))
                else:
                    logger.info("%s: the controller refused new in-sync replicas: %s", partition.name, code.name)
                    if in_sync.refused(partition, proposal, code):
                        self.propose(partition, proposal)
                        again = True
        return again

    # -- followers that fall behind

    async def _watch(self, replicas: Replicas) -> None:
        while True:
            await asyncio.sleep(max(replicas.lag_ms_max / 2000, 0.001))
            for at, partition in enumerate(list(replicas)):
                if partition.is_leader and len(partition.isr) > 1:
                    in_sync.shrink(partition, replicas, self._host.clock.monotonic_ms())
                if at % _SLICE == _SLICE - 1:
                    await asyncio.sleep(0)
