"""The end of a transaction in one partition led by this broker: a control batch, acknowledged when it is replicated.

In a partition of `__consumer_offsets` the group coordinator writes it, because its pending offsets end with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from pylogd.coordinators.shard.effects import Reply
from pylogd.metadata.topic_names import OFFSETS_TOPIC
from pylogd.protocol.control import end_txn_batch
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.storage.validation import Origin

if TYPE_CHECKING:
    from pylogd.replication.partition import Partition

Done = Callable[[ErrorCode], None]

#: What a group coordinator that is not ready means to the transaction's: ask again, maybe elsewhere.
_NOT_READY = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


class Marker(NamedTuple):
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    #: The generation of the protocol that decided it: from 2 on its epoch must be higher than the transaction's.
    transaction_version: int


def append_marker(node: Any, topic: str, index: int, marker: Marker, done: Done) -> None:
    """Write a marker; `done` hears the outcome, maybe before this returns."""
    partition: Partition | None = node.replicas.get(topic, index)
    if partition is None or partition.offline:
        done(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    elif topic == OFFSETS_TOPIC:
        _append_to_offsets(node, index, marker, done)
    else:
        _append(node, partition, marker, done)


def _append_to_offsets(node: Any, index: int, marker: Marker, done: Done) -> None:
    reply = Reply(lambda code, message: ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _NOT_READY else code)
    reply.listen(done)
    try:
        node.groups.runtime.shard(index).end_transaction(
            reply,
            ErrorCode.NONE,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            committed=marker.commit,
            transaction_version=marker.transaction_version,
        )
    except KafkaError as refusal:
        reply.fail(refusal.code)


def _append(node: Any, partition: Partition, marker: Marker, done: Done) -> None:
    now_ms = node.clock.now_ms()
    batch = end_txn_batch(
        commit=marker.commit,
        coordinator_epoch=marker.coordinator_epoch,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        timestamp_ms=now_ms,
    )
    try:
        info = partition.append(
            memoryview(batch),
            acks=-1,
            now_ms=now_ms,
            origin=Origin.COORDINATOR,
            transaction_version=marker.transaction_version,
        )
    except KafkaError as refusal:
        done(refusal.code)
        return
    if partition.high_watermark > info.last_offset:
        done(partition.ack_code)
    else:
        _Written(node, partition, info.last_offset + 1, done)


class _Written:
    """A marker that waits for the high watermark."""

    __slots__ = ("_done", "_partition", "_timer")

    def __init__(self, node: Any, partition: Partition, offset: int, done: Done) -> None:
        self._done = done
        self._partition = partition
        self._timer = node.loop.call_later(node.config["request.timeout.ms"] / 1000, self._expire)
        partition.waiters.await_ack(offset, partition.leader_epoch, self, 0)

    def acknowledged(self, slot: int, code: ErrorCode) -> None:
        self._timer.cancel()
        self._done(code)

    def _expire(self) -> None:
        self._partition.waiters.forget(self)
        self._done(ErrorCode.REQUEST_TIMED_OUT)
