"""The coordinators of one internal topic on this broker: a shard per partition that it leads.

Leaderships come from the committed cluster image. A shard is loaded when one is won and closed the moment it is lost;
loads run one after the other in the background.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pylogd.coordinators.shard.log_replay import load
from pylogd.coordinators.shard.shard import Shard
from pylogd.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from pylogd.metadata.delta import ImageDelta
    from pylogd.metadata.image import ClusterImage
    from pylogd.replication.partition import Partition

logger = logging.getLogger(__name__)


class CoordinatorRuntime:
    """`make_state(shard)` gives the empty state of a partition."""

    def __init__(
        self,
        node: Any,
        topic: str,
        make_state: Callable[[Shard], Any],
        *,
        load_buffer_bytes: int = 5 * 1024 * 1024,
        compression: int = 0,
        commit_timeout_ms: int = 5000,
        reload_pause_ms: int = 500,
    ) -> None:
        self.node = node
        self.topic = topic
        self._make_state = make_state
        self._load_buffer_bytes = load_buffer_bytes
        self._compression = compression
        self._commit_timeout_ms = commit_timeout_ms
        self._reload_pause_ms = reload_pause_ms
        self.shards: dict[int, Shard] = {}
        self._loads: deque[Shard] = deque()
        self._loader: asyncio.Task[None] | None = None
        self._closed = False
        node.publisher.listeners.append(self.metadata_changed)

    @property
    def partition_count(self) -> int:
        """How many partitions the topic has; 0 when it does not exist."""
        topic = self.node.image.topic(self.topic)
        return 0 if topic is None else len(topic.partitions)

    def shard(self, index: int) -> Shard:
        """The shard of a partition, ready for events; KafkaError otherwise."""
        shard = self.shards.get(index)
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if not shard.active:
            shard.check()
        return shard

    def active(self) -> Iterator[Shard]:
        return (shard for shard in tuple(self.shards.values()) if shard.active)

    # -- leaderships

    def metadata_changed(self, delta: ImageDelta, image: ClusterImage) -> None:
        """Called after the replicas have taken their roles."""
        if self._closed:
            return
        topic = image.topic(self.topic)
        if topic is not None and topic.id in delta.partitions:
            for index in delta.partitions[topic.id]:
                partition = self.node.replicas.get(self.topic, index)
                if partition is not None and self._leadership not in partition.listeners:
                    partition.listeners.append(self._leadership)
                    if partition.is_leader:
                        self._leadership(partition, partition.leader_epoch)
        if delta.partitions or delta.deleted_topics or delta.configs:
            for shard in self.active():
                state = shard.state
                event = lambda effects, state=state: state.metadata_changed(effects, delta, image)  # noqa: E731
                shard.run(("metadata", image.offset), event)

    def _leadership(self, partition: Partition, epoch: int | None) -> None:
        shard = self.shards.get(partition.index)
        if epoch is None:
            if shard is not None and shard.partition is partition:
                del self.shards[partition.index]
                shard.close()
            return
        if shard is not None:
            if shard.partition is partition and not shard.failed:
                shard.new_epoch(epoch)
                return
            shard.close()
        shard = Shard(
            self.node,
            partition,
            epoch,
            self._make_state,
            self._load_again,
            compression=self._compression,
            commit_timeout_ms=self._commit_timeout_ms,
        )
        self.shards[partition.index] = shard
        self._schedule_load(shard)

    # -- loading

    def _load_again(self, shard: Shard) -> None:
        """After a failure, with a pause: on a full disk every write fails, and every failure asks for a load."""
        self.node.loop.call_later(self._reload_pause_ms / 1000, self._schedule_load, shard)

    def _schedule_load(self, shard: Shard) -> None:
        if self._closed or shard.closed:
            return
        self._loads.append(shard)
        if self._loader is None:
            self._loader = self.node.loop.create_task(self._load_all())

    async def _load_all(self) -> None:
        try:
            while self._loads:
                shard = self._loads.popleft()
                if not shard.closed:
                    await self._load(shard)
                    await asyncio.sleep(0)
        finally:
            self._loader = None

    async def _load(self, shard: Shard) -> None:
        started = self.node.loop.time()
        try:
            count = await load(shard, self._load_buffer_bytes)
        except Exception:
            if not shard.closed:
                logger.exception("loading %s failed: it cannot be served", shard.partition.name)
                shard.failed = True
            return
        if shard.closed:
            return
        took_ms = (self.node.loop.time() - started) * 1000
        if count:
            logger.info("%s is loaded: %d records in %.0f ms", shard.partition.name, count, took_ms)
        shard.activate()

    async def close(self) -> None:
        """The broker stops: nothing is served any more."""
        self._closed = True
        shards, self.shards = self.shards, {}
        for shard in shards.values():
            shard.flush()
            shard.close()
        self._loads.clear()
        if self._loader is not None:
            self._loader.cancel()
            await asyncio.gather(self._loader, return_exceptions=True)
