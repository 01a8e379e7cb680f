"""Topics as Metadata and DescribeTopicPartitions show them: leaders that can be reached, replicas that cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pylogd.metadata.registrations import Partition
from pylogd.metadata.topic_names import invalid_name_reason
from pylogd.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from pylogd.metadata.image import ClusterImage

NO_LEADER: Final = -1


class ListenerView:
    """The image as seen through one listener. Lives for one request."""

    __slots__ = ("_image", "_reachable", "_registered", "_same_dir")

    def __init__(self, image: ClusterImage, listener: str) -> None:
        self._image = image
        #: brokers with the listener, alive or not: Kafka names a fenced leader as long as it is the leader
        self._registered = {broker.id for broker in image.brokers.values() if listener in broker.endpoints}
        self._reachable = {broker_id for broker_id in self._registered if not image.brokers[broker_id].fenced}
        self._same_dir: dict[tuple[tuple[int, ...], tuple[bytes, ...]], list[int]] = {}

    def leader(self, partition: Partition) -> int:
        return partition.leader if partition.leader in self._registered else NO_LEADER

    def leader_error(self, partition: Partition, *, listener_errors: bool) -> ErrorCode:
        """Why a partition has no leader to show."""
        if partition.leader not in self._image.brokers or not listener_errors:
            return ErrorCode.LEADER_NOT_AVAILABLE
        return ErrorCode.LISTENER_NOT_FOUND

    def reachable(self, brokers: tuple[int, ...]) -> list[int]:
        return [broker for broker in brokers if broker in self._reachable]

    def offline(self, partition: Partition) -> list[int]:
        """Replicas on brokers that are gone, fenced or not on this listener, or in a failed directory."""
        key = (partition.replicas, partition.directories)
        known = self._same_dir.get(key)
        if known is None:
            known = self._same_dir[key] = [
                replica
                for replica, directory in zip(partition.replicas, partition.directories)
                if replica not in self._reachable or not self._image.brokers[replica].has_online_directory(directory)
            ]
        return known


def missing_topic_code(name: str) -> ErrorCode:
    """What a topic that does not exist is answered with."""
    if invalid_name_reason(name) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def metadata_partitions(view: ListenerView, partitions: list[Partition], version: int, struct: type[Any]) -> list[Any]:
    """Partitions of a Metadata response. Version 0 leaves unreachable replicas out and says so with an error; up to 5 a
    leader without this listener counts as no leader."""
    found = []
    for index, partition in enumerate(partitions):
        replicas, isr = list(partition.replicas), list(partition.isr)
        if version == 0:
            replicas, isr = view.reachable(partition.replicas), view.reachable(partition.isr)
        leader = view.leader(partition)
        code = ErrorCode.NONE
        if leader == NO_LEADER:
            code = view.leader_error(partition, listener_errors=version >= 6)
        elif len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr):
            code = ErrorCode.REPLICA_NOT_AVAILABLE
        found.append(
            struct(
                error_code=code,
                partition_index=index,
                leader_id=leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=replicas,
                isr_nodes=isr,
                offline_replicas=view.offline(partition),
            )
        )
    return found
