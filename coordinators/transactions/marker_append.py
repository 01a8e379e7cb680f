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
        if partition.high_watermark > info.last_offset:
            done(partition.ack_code)
        else:
            _Written(self._host, partition, info.last_offset + 1, done)


class _Written:
    """A marker that waits for the high watermark."""

    __slots__ = ("_done", "_partition", "_timer")

    def __init__(self, host: Host, partition: Partition, offset: int, done: Done) -> None:
        self._done = done
        self._partition = partition
        self._timer = host.loop.call_later(host.config["request.timeout.ms"] / 1000, self._expire)
        partition.waiters.await_ack(offset, partition.leader_epoch, self, 0)

    def acknowledged(self, slot: int, code: ErrorCode) -> None:
        self._timer.cancel()
        self._done(code)

    def _expire(self) -> None:
        self._partition.waiters.forget(self)
        self._done(ErrorCode.REQUEST_TIMED_OUT)
