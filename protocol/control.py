"""Control records: what brokers and controllers write into logs for each other, never for consumers.

Key: version int16 = 0, type int16. The value of an end-of-transaction marker is version int16 = 0 and the coordinator
epoch int32; the other types carry the message of the same name (LeaderChangeMessage, SnapshotHeaderRecord, ...) without
a version prefix. A control batch holds exactly one kind of record; transaction markers are transactional as well and
have no sequence.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from struct import Struct

from pylogd.protocol import batch
from pylogd.protocol.errors import ErrorCode, KafkaError

_KEY = Struct(">hh")
_MARKER = Struct(">hi")


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
    UNKNOWN = -1


def control_key(kind: ControlType) -> bytes:
    return _KEY.pack(0, kind)


def control_type(key: bytes | None) -> ControlType:
    """The type of a control record by its key; types of the future are UNKNOWN and to be ignored."""
    if key is None or len(key) < 4:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a control record key must have at least 4 bytes")
    version, kind = _KEY.unpack_from(key)
    if version < 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"invalid version found for control record: {version}")
    return ControlType(kind) if 0 <= kind <= ControlType.KRAFT_VOTERS else ControlType.UNKNOWN


def marker_value(coordinator_epoch: int) -> bytes:
    return _MARKER.pack(0, coordinator_epoch)


def marker_coordinator_epoch(value: bytes | None) -> int:
    if value is None or len(value) < 6:
        raise KafkaError(ErrorCode.INVALID_RECORD, "an end transaction marker must have at least 6 bytes")
    version, epoch = _MARKER.unpack_from(value)
    if version < 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"invalid version found for end transaction marker: {version}")
    return int(epoch)


def end_txn_batch(
    *,
    commit: bool,
    coordinator_epoch: int,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = batch.NO_LEADER_EPOCH,
) -> bytearray:
    """The batch that ends a producer's transaction in one partition."""
    key = control_key(ControlType.COMMIT if commit else ControlType.ABORT)
    return batch.build_batch(
        [batch.Record(0, timestamp_ms, key, marker_value(coordinator_epoch))],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
        leader_epoch=leader_epoch,
    )


def control_batch(
    values: Iterable[tuple[ControlType, bytes]],
    *,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = batch.NO_LEADER_EPOCH,
) -> bytearray:
    """A batch of quorum control records (leader change, snapshot header and footer, kraft version, voters)."""
    return batch.build_batch(
        [batch.Record(0, timestamp_ms, control_key(kind), value) for kind, value in values],
        base_offset=base_offset,
        control=True,
        leader_epoch=leader_epoch,
    )
