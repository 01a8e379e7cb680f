"""From committed metadata records to what this broker does about them.

The records come in order as the bytes of their batches. The image takes them at once, so that Metadata answers are
never behind; what follows (logs made and removed, leaderships taken and given up, configs applied) happens right after,
in one go when it is little, and otherwise in slices, so that a topic with thousands of partitions does not hold up the
event loop. Each step brings one partition in line with the image as it is now, not as it was when the record came, so
steps that have become pointless do nothing.

At start nothing is done until `start()`: the image is loaded first, and then everything in it is applied once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pylogd.broker.replicas.directory_assignment import DirectoryAssignment
from pylogd.config import dynamic
from pylogd.config import topic_configs as topic_config
from pylogd.metadata.delta import ImageDelta, difference
from pylogd.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, ClusterImage
from pylogd.metadata.latest import LatestImage
from pylogd.metadata.record_batches import decode_batches
from pylogd.metadata.registrations import Topic
from pylogd.metadata.snapshot import SnapshotId, replay_snapshot
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.uuids import is_reserved
from pylogd.storage.log_config import LogConfig

if TYPE_CHECKING:
    from pylogd.storage.log.log import Log

logger = logging.getLogger(__name__)

#: How long a turn of the event loop may be spent on applying metadata.
SLICE_SECONDS = 0.005


class MetadataPublisher:
    """This broker's image and the work that follows from it. `node` gives config, loop, logs, replicas and channel."""

    def __init__(self, node: Any) -> None:
        self._node = node
        self._metadata: LatestImage = node.metadata
        #: called with (delta, image) after everything else was applied
        self.listeners: list[Callable[[ImageDelta, ClusterImage], None]] = []
        self._applying = False
        self._work: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._offset_waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._plain_config: LogConfig | None = None
        self.assignment = DirectoryAssignment(node)

    @property
    def image(self) -> ClusterImage:
        return self._metadata.image

    @property
    def offset(self) -> int:
        """Offset of the last record in the image."""
        return self.image.offset

    # -- the stream of records

    def load_snapshot(self, data: bytes, snapshot_id: SnapshotId) -> None:
        image = ClusterImage()
        replay_snapshot(data, image, snapshot_id)
        before, self._metadata.image = self.image, image
        if self._applying:
            self._publish(difference(before, image))

    def committed(self, batches: Sequence[bytes | bytearray]) -> None:
        image = self.image
        delta = image.delta = ImageDelta() if self._applying else None
        for data in batches:
            for batch in decode_batches(data):
                image.epoch = batch.epoch
                if batch.control:
                    image.offset = batch.last_offset
                else:
                    for offset, record in enumerate(batch.records, batch.base_offset):
                        image.replay(record, offset)
        image.delta = None
        if delta:
            self._publish(delta)
        if self._offset_waiters:
            self._wake_offset_waiters()

    def reached(self, offset: int) -> asyncio.Future[None]:
        """Done when the image includes the record at `offset`."""
        future: asyncio.Future[None] = self._node.loop.create_future()
        self._offset_waiters.append((offset, future))
        self._wake_offset_waiters()
        return future

    def _wake_offset_waiters(self) -> None:
        waiting = []
        for offset, future in self._offset_waiters:
            if offset > self.image.offset:
                waiting.append((offset, future))
            elif not future.done():
                future.set_result(None)
        self._offset_waiters = waiting

    # -- applying

    async def start(self) -> None:
        """Applies the image as a whole, and from then on every change. Returns when every partition of this broker has
        its replica."""
        self._applying = True
        self._apply_broker_config()
        self._put_strays_aside()
        delta = ImageDelta()
        for topic in self.image.topics.values():
            delta.new_topics.add(topic.id)
            delta.partitions[topic.id] = dict.fromkeys(range(len(topic.partitions)))
        self._publish(delta)
        if self._task is not None:
            await self._task

    async def stop(self) -> None:
        """Applies nothing any more."""
        self._applying = False
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.assignment.stop()

    def _publish(self, delta: ImageDelta) -> None:
        """Deletions come first: a topic may be deleted and created again in one delta."""
        work = self._work
        own = (BROKER_RESOURCE, str(self._node.broker_id))
        if (BROKER_RESOURCE, "") in delta.configs or own in delta.configs:
            work.append((self._apply_broker_config, ()))
        if delta.brokers:
            work.append((self._node.fetchers.brokers_changed, (list(delta.brokers),)))
        for topic in delta.deleted_topics.values():
            for index in range(len(topic.partitions)):
                work.append((self._remove_deleted, (topic, index)))
        for topic_id, indexes in delta.partitions.items():
            for index in indexes:
                work.append((self._apply_partition, (topic_id, index)))
        for resource_type, name in delta.configs:
            if resource_type == TOPIC_RESOURCE:
                work.append((self._apply_topic_config, (name,)))
        work.append((self._tell_listeners, (delta,)))
        if self._task is None and not self._run_slice():
            self._task = self._node.loop.create_task(self._run())

    async def _run(self) -> None:
        try:
            done = False
            while not done:
                await asyncio.sleep(0)
                done = self._run_slice()
        finally:
            self._task = None

    def _run_slice(self) -> bool:
        """Works for a slice of time; True when nothing is left. What fails is logged and does not stop the rest."""
        time = self._node.loop.time
        deadline = time() + SLICE_SECONDS
        work = self._work
        while work:
            step, args = work.popleft()
            try:
                step(*args)
            except Exception:
                logger.exception("applying cluster metadata failed at %s%r", step.__name__, args)
            if work and time() >= deadline:
                return False
        return True

    def _tell_listeners(self, delta: ImageDelta) -> None:
        for listener in self.listeners:
            listener(delta, self.image)

    def _remove_deleted(self, topic: Topic, index: int) -> None:
        hosted = self._node.replicas.get(topic.name, index)
        if hosted is not None:
            if hosted.topic_id == topic.id:
                self._remove(topic.name, index)
            return
        partition = topic.partition(index)
        if partition is not None and self._node.broker_id in partition.replicas:
            self._remove(topic.name, index)

    def _apply_partition(self, topic_id: bytes, index: int) -> None:
        topic = self.image.topic_by_id(topic_id)
        if topic is None:
            return
        replicas, me = self._node.replicas, self._node.broker_id
        partition = topic.partition(index)
        hosted = replicas.get(topic.name, index)
        if hosted is not None and hosted.topic_id != topic.id:
            self._remove(topic.name, index)  # what an earlier topic of this name left
            hosted = None
        if partition is None or me not in partition.replicas:
            if hosted is not None:
                self._remove(topic.name, index)
            return
        if hosted is None:
            hosted = self._host(topic, index, partition.directory(me))
            if hosted is None:
                return
        if partition.leader == me:
            hosted.become_leader(partition.leader_epoch, partition.isr, partition.replicas, partition.partition_epoch)
        else:
            hosted.become_follower(
                partition.leader_epoch, partition.leader, partition.isr, partition.replicas, partition.partition_epoch
            )
        self._node.fetchers.update(hosted)

    def _host(self, topic: Topic, index: int, assigned: bytes | None) -> Any:
        """The new replica; None when the directory it belongs to is offline. A log that is on disk already is opened
        when it is first used."""
        logs = self._node.logs
        home = logs.directory_of(topic.name, index)
        if home is None:
            if assigned is not None and not is_reserved(assigned):
                directory = logs.directory_by_id(assigned)
                offline = any(not directory.online for directory in logs.directories)
                if (directory is None and offline) or (directory is not None and not directory.online):
                    logger.warning("%s-%d is in a log directory that is offline", topic.name, index)
                    return None
            try:
                log: Any = self._open(topic.name, index, topic.id, assigned)
            except KafkaError as error:
                logger.error("cannot create the log of %s-%d: %s", topic.name, index, error.message)
                return None
            home = logs.directory_of(topic.name, index)
        elif not home.online:
            return None
        else:
            name, topic_id = topic.name, topic.id
            log = lambda: self._open(name, index, topic_id, assigned)  # noqa: E731
        if home is not None and home.id is not None and home.id != assigned:
            self.assignment.assign(topic.id, index, home.id)
        return self._node.replicas.add(topic.name, index, topic.id, log)

    def _open(self, name: str, index: int, topic_id: bytes, assigned: bytes | None) -> Log:
        logs = self._node.logs
        directory_id = None if assigned is None or is_reserved(assigned) else assigned
        config = self.log_config(name)
        try:
            log: Log = logs.create(name, index, topic_id=topic_id, config=config, directory_id=directory_id)
        except KafkaError as error:
            if error.code is not ErrorCode.INCONSISTENT_TOPIC_ID:
                raise
            logger.warning("%s-%d on disk belongs to a topic that was deleted: it is put aside", name, index)
            logs.put_aside_stray(name, index)
            log = logs.create(name, index, topic_id=topic_id, config=config, directory_id=directory_id)
        return log

    def _remove(self, name: str, index: int) -> None:
        gone = self._node.replicas.remove(name, index)
        if gone is not None:
            self._node.fetchers.remove((gone.topic_id, index))
        home = self._node.logs.directory_of(name, index)
        if home is not None:
            self._node.cleaner.forget(name, index, home.path)
        try:
            self._node.logs.delete(name, index)
        except KafkaError as error:
            logger.warning("the log of %s-%d stays on disk: %s", name, index, error.message)

    def _put_strays_aside(self) -> None:
        """Partitions on disk that the cluster does not place here: deleted while this broker was down."""
        me = self._node.broker_id
        for name, index in self._node.logs.partitions():
            partition = self.image.partition(name, index)
            if partition is None or me not in partition.replicas:
                try:
                    self._node.logs.put_aside_stray(name, index)
                    logger.warning("%s-%d is on disk but not in the cluster's metadata: it is put aside", name, index)
                except KafkaError as error:
                    logger.warning("%s-%d is not in the cluster's metadata: %s", name, index, error.message)

    def _apply_topic_config(self, name: str) -> None:
        if name in self.image.topics:
            self._node.logs.update_config(name, self.log_config(name))

    # -- configs

    def log_config(self, topic: str) -> LogConfig:
        """A topic's configuration: its overrides, then this broker's settings. Topics without overrides share one."""
        overrides = self.image.topic_config(topic)
        if not overrides:
            if self._plain_config is None:
                self._plain_config = LogConfig.from_values(topic_config.resolve({}, self._node.config))
            return self._plain_config
        return LogConfig.from_values(topic_config.resolve(overrides, self._node.config))

    def _apply_broker_config(self) -> None:
        """Dynamic settings of the cluster and of this broker; every topic that inherits from them follows."""
        refused = dynamic.apply(
            self._node.config,
            default=self.image.config(BROKER_RESOURCE, ""),
            broker=self.image.config(BROKER_RESOURCE, str(self._node.broker_id)),
        )
        for name, reason in refused.items():
            logger.warning("dynamic config %s is not used: %s", name, reason)
        self._plain_config = None
        for name in dict.fromkeys(log.topic for log in self._node.logs.loaded()):
            self._node.logs.update_config(name, self.log_config(name))
