"""Where a partition is when it is not here: what to answer, and where the client should go (KIP-951)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pylogd.broker.network.client_endpoints import alive_broker_address
from pylogd.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from pylogd.broker.network.context import RequestContext


def missing_partition_code(node: Any, topic: str | bytes, index: int) -> ErrorCode:
    """Why this broker has no replica of a partition, named by topic or topic id."""
    known = node.image.topic_by_id(topic) if isinstance(topic, bytes) else node.image.topic(topic)
    if known is None:
        return ErrorCode.UNKNOWN_TOPIC_ID if isinstance(topic, bytes) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    registered = known.partition(index)
    if registered is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if node.broker_id in registered.replicas and _directory_is_offline(node, registered.directory(node.broker_id)):
        return ErrorCode.KAFKA_STORAGE_ERROR
    # It lives elsewhere, or has just left or not yet arrived: the client asks for metadata again.
    return ErrorCode.NOT_LEADER_OR_FOLLOWER


def _directory_is_offline(node: Any, directory_id: bytes | None) -> bool:
    """Whether a replica of ours is missing because its disk is. A disk that fails at start has no id to go by."""
    directories = node.logs.directories
    if all(directory.online for directory in directories):
        return False
    return not any(directory.online and directory.id == directory_id for directory in directories)


def current_leader(node: Any, topic: str | bytes, index: int) -> tuple[int, int]:
    """(leader, leader epoch) as this broker knows it; (-1, -1) when it does not."""
    by_id = isinstance(topic, bytes)
    partition = node.replicas.get_by_id(topic, index) if by_id else node.replicas.get(topic, index)
    if partition is not None and not partition.offline:
        return partition.leader, partition.leader_epoch
    known = node.image.topic_by_id(topic) if by_id else node.image.topic(topic)
    registered = known.partition(index) if known is not None else None
    return (-1, -1) if registered is None else (registered.leader, registered.leader_epoch)


def add_leader_endpoint(ctx: RequestContext, leader: int, endpoints: dict[int, Any], struct: type[Any]) -> None:
    """Add the leader's address on the client's own listener, if it is alive and has one."""
    if leader in endpoints:
        return
    address = alive_broker_address(ctx, leader)
    if address is not None:
        host, port = address
        endpoints[leader] = struct(node_id=leader, host=host, port=port, rack=ctx.services.image.brokers[leader].rack)
