"""Which replicas this broker hosts, and in which role: what the metadata says of its partitions takes effect.

Logs are made and removed, leaderships taken and given up, fetchers pointed at the leaders. A log that is on disk
already is opened when it is first used, so that a broker with thousands of partitions starts at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.uuids import is_reserved

if TYPE_CHECKING:
    from pylogd.broker.replicas.directory_assignment import DirectoryAssignment
    from pylogd.metadata.delta import ImageDelta
    from pylogd.metadata.image import ClusterImage
    from pylogd.metadata.latest import LatestImage
    from pylogd.metadata.registrations import Topic
    from pylogd.replication.fetchers import Fetchers
    from pylogd.replication.partition import Partition
    from pylogd.replication.replicas import Replicas
    from pylogd.storage.compaction.cleaner import LogCleaner
    from pylogd.storage.directories.log_manager import LogManager
    from pylogd.storage.log.log import Log

logger = logging.getLogger(__name__)


class HostedReplicas:
    """Listener for partitions. Each is brought in line with the image as it is at that time."""

    def __init__(
        self,
        broker_id: int,
        metadata: LatestImage,
        logs: LogManager,
        replicas: Replicas,
        fetchers: Fetchers,
        cleaner: LogCleaner,
        assignment: DirectoryAssignment,
    ) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._logs = logs
        self._replicas = replicas
        self._fetchers = fetchers
        self._cleaner = cleaner
        self._assignment = assignment

    def apply(self, delta: ImageDelta, image: ClusterImage) -> Iterator[partial[None]]:
        """Deletions come first: a topic may be deleted and created again in one delta."""
        for topic in delta.deleted_topics.values():
            for index in range(len(topic.partitions)):
                yield partial(self._remove_deleted, topic, index)
        for topic_id, indexes in delta.partitions.items():
            for index in indexes:
                yield partial(self._bring_in_line, topic_id, index)

    def put_strays_aside(self) -> None:
        """Partitions on disk that the cluster does not place here: deleted while this broker was down."""
        me = self._broker_id
        for name, index in self._logs.partitions():
            partition = self._metadata.image.partition(name, index)
            if partition is None or me not in partition.replicas:
                try:
                    self._logs.put_aside_stray(name, index)
                    logger.warning("%s-%d is on disk but not in the cluster's metadata: it is put aside", name, index)
                except KafkaError as error:
                    logger.warning("%s-%d is not in the cluster's metadata: %s", name, index, error.message)

    def _remove_deleted(self, topic: Topic, index: int) -> None:
        hosted = self._replicas.get(topic.name, index)
        if hosted is not None:
            if hosted.topic_id == topic.id:
                self._remove(topic.name, index)
            return
        partition = topic.partition(index)
        if partition is not None and self._broker_id in partition.replicas:
            self._remove(topic.name, index)

    def _bring_in_line(self, topic_id: bytes, index: int) -> None:
        topic = self._metadata.image.topic_by_id(topic_id)
        if topic is None:
            return
        replicas, me = self._replicas, self._broker_id
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
        self._fetchers.update(hosted)

    def _host(self, topic: Topic, index: int, assigned: bytes | None) -> Partition | None:
        """The new replica; None when the directory it belongs to is offline."""
        logs = self._logs
        home = logs.directory_of(topic.name, index)
        if home is None:
            if assigned is not None and not is_reserved(assigned):
                directory = logs.directory_by_id(assigned)
                offline = any(not directory.online for directory in logs.directories)
                if (directory is None and offline) or (directory is not None and not directory.online):
                    logger.warning("%s-%d is in a log directory that is offline", topic.name, index)
                    return None
            try:
                log: Log | Callable[[], Log] = self._open(topic.name, index, topic.id, assigned)
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
            self._assignment.assign(topic.id, index, home.id)
        return self._replicas.add(topic.name, index, topic.id, log)

    def _open(self, name: str, index: int, topic_id: bytes, assigned: bytes | None) -> Log:
        logs = self._logs
        directory_id = None if assigned is None or is_reserved(assigned) else assigned
        try:
            return logs.create(name, index, topic_id=topic_id, directory_id=directory_id)
        except KafkaError as error:
            if error.code is not ErrorCode.INCONSISTENT_TOPIC_ID:
                raise
            logger.warning("%s-%d on disk belongs to a topic that was deleted: it is put aside", name, index)
            logs.put_aside_stray(name, index)
            return logs.create(name, index, topic_id=topic_id, directory_id=directory_id)

    def _remove(self, name: str, index: int) -> None:
        gone = self._replicas.remove(name, index)
        if gone is not None:
            self._fetchers.remove((gone.topic_id, index))
        home = self._logs.directory_of(name, index)
        if home is not None:
            self._cleaner.forget(name, index, home.path)
        try:
            self._logs.delete(name, index)
        except KafkaError as error:
            logger.warning("the log of %s-%d stays on disk: %s", name, index, error.message)
