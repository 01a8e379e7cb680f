"""The shards of one internal topic: one for each of its partitions that this broker leads.

What they are told comes in this order. First each replica takes its role, and its partition tells at once that the
leadership is won or lost: a shard is made, or closed the moment it must not answer any more. A leadership can also end
without a change of the metadata, in a log directory that failed. Then, when all replicas have their roles, the metadata
publisher tells what else has changed (`apply`), and the states of the shards look at it.

Loads run one after the other in the background.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Generic

from pylogd.coordinators.shard.contract import State
from pylogd.coordinators.shard.log_replay import load
from pylogd.coordinators.shard.shard import Shard
from pylogd.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from pylogd.config.host import Host
    from pylogd.metadata.delta import ImageDelta
    from pylogd.metadata.image import ClusterImage
    from pylogd.metadata.latest import LatestImage
    from pylogd.replication.partition import Partition
    from pylogd.replication.replicas import Replicas

logger = logging.getLogger(__name__)


class Shards(Generic[State]):
    """`make_state(shard)` gives the empty state of a partition."""

    def __init__(
        self,
        host: Host,
        metadata: LatestImage,
        replicas: Replicas,
        topic: str,
        make_state: Callable[[Shard[State]], State],
        *,
        load_buffer_bytes: int = 5 * 1024 * 1024,
        compression: int = 0,
        commit_timeout_ms: int = 5000,
        reload_pause_ms: int = 500,
    ) -> None:
        self._host = host
        self._metadata = metadata
        self.topic = topic
        self._make_state = make_state
        self._load_buffer_bytes = load_buffer_bytes
        self._compression = compression
        self._commit_timeout_ms = commit_timeout_ms
        self._reload_pause_ms = reload_pause_ms
        self.by_partition: dict[int, Shard[State]] = {}
        self._loads: deque[Shard[State]] = deque()
        self._loader: asyncio.Task[None] | None = None
        self._closed = False
        replicas.watch_leaderships(topic, self._leadership)

    @property
    def partition_count(self) -> int:
        """How many partitions the topic has; 0 when it does not exist."""
        topic = self._metadata.image.topic(self.topic)
        return 0 if topic is None else len(topic.partitions)

    def ready(self, index: int) -> Shard[State]:
        """The shard of a partition, ready for events; KafkaError otherwise."""
        shard = self.by_partition.get(index)
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if not shard.active:
            shard.check()
        return shard

    def active(self) -> Iterator[Shard[State]]:
        return (shard for shard in tuple(self.by_partition.values()) if shard.active)

    # -- what changes

    def _leadership(self, partition: Partition, epoch: int | None) -> None:
        """Won under `epoch`, or lost."""
        shard = self.by_partition.get(partition.index)
        if epoch is None:
            if shard is not None and shard.partition is partition:
                del self.by_partition[partition.index]
                shard.close()
            return
        if self._closed:
            return
        if shard is not None:
            if shard.partition is partition and not shard.failed:
                shard.new_epoch(epoch)
                return
            shard.close()
        shard = Shard(
            self._host,
            partition,
            epoch,
            self._make_state,
            self._load_again,
            compression=self._compression,
            commit_timeout_ms=self._commit_timeout_ms,
        )
        self.by_partition[partition.index] = shard
        self._schedule_load(shard)

    def apply(self, delta: ImageDelta, image: ClusterImage) -> None:
        """The metadata changed, and the replicas have taken their roles."""
        if self._closed or not (delta.partitions or delta.deleted_topics or delta.configs):
            return
        for shard in self.active():
            state = shard.state
            event = lambda effects, state=state: state.metadata_changed(effects, delta, image)  # noqa: E731
            shard.run(("metadata", image.offset), event)

    # -- loading

    def _load_again(self, shard: Shard[State]) -> None:
        """After a failure, with a pause: on a full disk every write fails, and every failure asks for a load."""
        self._host.loop.call_later(self._reload_pause_ms / 1000, self._schedule_load, shard)

    def _schedule_load(self, shard: Shard[State]) -> None:
        if self._closed or shard.closed:
            return
        self._loads.append(shard)
        if self._loader is None:
            self._loader = self._host.loop.create_task(self._load_all())

    async def _load_all(self) -> None:
        try:
            while self._loads:
                shard = self._loads.popleft()
                if not shard.closed:
                    await self._load(shard)
                    await asyncio.sleep(0)
        finally:
            self._loader = None

    async def _load(self, shard: Shard[State]) -> None:
        started = self._host.loop.time()
        try:
            count = await load(self._host, shard.partition, shard.state, self._load_buffer_bytes)
        except Exception:
            if not shard.closed:
                logger.exception("loading %s failed: it cannot be served", shard.partition.name)
                shard.failed = True
            return
        if shard.closed:
            return
        took_ms = (self._host.loop.time() - started) * 1000
        if count:
            logger.info("%s is loaded: %d records in %.0f ms", shard.partition.name, count, took_ms)
        shard.activate()

    async def close(self) -> None:
        """The broker stops: nothing is served any more."""
        self._closed = True
        shards, self.by_partition = self.by_partition, {}
        for shard in shards.values():
            shard.flush()
            shard.close()
        self._loads.clear()
        if self._loader is not None:
            self._loader.cancel()
            await asyncio.gather(self._loader, return_exceptions=True)
