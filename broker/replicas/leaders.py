"""Where a partition is when it is not here: what to answer, and who leads it (KIP-951)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pylogd.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from pylogd.metadata.latest import LatestImage
    from pylogd.metadata.registrations import Topic
    from pylogd.replication.replicas import Replicas
    from pylogd.storage.directories.log_manager import LogManager


class Leaders:
    """Finds the leaders of partitions, which requests name by topic or by topic id."""

    __slots__ = ("_broker_id", "_logs", "_metadata", "_replicas")

    def __init__(self, broker_id: int, metadata: LatestImage, replicas: Replicas, logs: LogManager) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._replicas = replicas
        self._logs = logs

    def missing_code(self, topic: str | bytes, index: int) -> ErrorCode:
        """Why this broker has no replica of a partition."""
        known = self._topic(topic)
        if known is None:
            return ErrorCode.UNKNOWN_TOPIC_ID if isinstance(topic, bytes) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        registered = known.partition(index)
        if registered is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        me = self._broker_id
        if me in registered.replicas and self._is_offline(registered.directory(me)):
            return ErrorCode.KAFKA_STORAGE_ERROR
        # It is on other brokers, or moving to or from this one: the client asks for metadata again.
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def current(self, topic: str | bytes, index: int) -> tuple[int, int]:
        """(leader, leader epoch) as this broker knows it; (-1, -1) when it does not."""
        replicas = self._replicas
        partition = replicas.get_by_id(topic, index) if isinstance(topic, bytes) else replicas.get(topic, index)
        if partition is not None and not partition.offline:
            return partition.leader, partition.leader_epoch
        known = self._topic(topic)
        registered = known.partition(index) if known is not None else None
        return (-1, -1) if registered is None else (registered.leader, registered.leader_epoch)

    def _topic(self, topic: str | bytes) -> Topic | None:
        image = self._metadata.image
        return image.topic_by_id(topic) if isinstance(topic, bytes) else image.topic(topic)

    def _is_offline(self, directory_id: bytes | None) -> bool:
        """Whether a replica is missing here because its directory is. One that failed at start has no id to compare."""
        directories = self._logs.directories
        if all(directory.online for directory in directories):
            return False
        return not any(directory.online and directory.id == directory_id for directory in directories)
