"""Markers for the partitions that this broker leads: written, and acknowledged when they are replicated.

A partition whose records are the state of a shard (`__consumer_offsets`) gets its marker through the shard, because
what the transaction left pending there ends with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pylogd.coordinators.shard.effects import Reply
from pylogd.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from pylogd.config.host import Host
    from pylogd.coordinators.shard.marker import Marker
    from pylogd.coordinators.shard.shards import Shards
    from pylogd.replication.partition import Partition
    from pylogd.replication.replicas import Replicas

Done = Callable[[ErrorCode], None]

#: What a group coordinator that is not ready means to the transaction's: ask again, maybe elsewhere.
_NOT_READY = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


class MarkerAppend:
    """`offsets` are the shards that take part in transactions."""

    def __init__(self, host: Host, replicas: Replicas, offsets: Shards[Any]) -> None:
        self._host = host
        self._replicas = replicas
        self._offsets = offsets

    def append(self, topic: str, index: int, marker: Marker, done: Done) -> None:
        """Write a marker; `done` hears the outcome, maybe before this returns."""
        partition = self._replicas.get(topic, index)
        if partition is None or partition.offline:
            done(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif topic == self._offsets.topic:
            self._append_to_shard(index, marker, done)
        else:
            self._append(partition, marker, done)

    def _append_to_shard(self, index: int, marker: Marker, done: Done) -> None:
        reply = Reply(lambda code, message: ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _NOT_READY else code)
        reply.listen(done)
        try:
            self._offsets.ready(index).end_transaction(marker, reply, ErrorCode.NONE)
        except KafkaError as refusal:
            reply.fail(refusal.code)

    def _append(self, partition: Partition, marker: Marker, done: Done) -> None:
        try:
            info = marker.append_to(partition, self._host.clock.now_ms())
        except KafkaError as refusal:
            done(refusal.code)
            return
        deadline_s = self._host.loop.time() + self._host.config["request.timeout.ms"] / 1000
        partition.when_committed(info.last_offset + 1, partition.leader_epoch, deadline_s, _Written(done))


class _Written:
    """A marker that waits for the high watermark."""

    __slots__ = ("_done",)

    def __init__(self, done: Done) -> None:
        self._done = done

    def acknowledged(self, slot: int, code: ErrorCode) -> None:
        self._done(code)
