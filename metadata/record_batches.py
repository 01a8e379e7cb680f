"""Metadata records as bytes: how one record is framed, and how runs of them become batches of the metadata log.

A record's value is: frame version (unsigned varint, always 1), api key of the record type (unsigned varint), version of
the type (unsigned varint), then the message at that version with nothing after it. The key is null. Control records
(leader change, snapshot header and footer, kraft version, voters) live in batches of their own with the control bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from pylogd.protocol import batch as batches
from pylogd.protocol.codec import decode, decoder, encode
from pylogd.protocol.control import ControlType, control_key, control_type
from pylogd.protocol.errors import ProtocolError
from pylogd.protocol.messages import control_records
from pylogd.protocol.messages.metadata_records import METADATA_RECORDS
from pylogd.protocol.schema import Message

FRAME_VERSION = 1

#: What a decision returns and a log takes: a message and the version to write it at.
VersionedRecord = tuple[Any, int]
#: The same of a control record, behind its type.
ControlMessage = tuple[ControlType, Message, int]


def record_class(api_key: int) -> type[Message]:
    """The message class of a record type."""
    cls = METADATA_RECORDS.get(api_key)
    if cls is None:
        raise ProtocolError(f"unknown metadata record type {api_key}")
    return cls


def encode_record(message: Message, version: int) -> bytes:
    """The value of one metadata record. Api keys and versions below 128 are their own varints."""
    return bytes((FRAME_VERSION, message.API_KEY, version)) + encode(message, version)


def _unsigned_varint(data: bytes, pos: int, what: str) -> tuple[int, int]:
    value = shift = 0
    while True:
        if pos >= len(data) or shift > 28:
            raise ProtocolError(f"metadata record ends inside its {what}")
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
        shift += 7


@lru_cache(maxsize=256)
def _reader(head: bytes) -> tuple[Callable[..., tuple[Any, int]], int, int]:
    """What a record's first bytes say about the rest: its generated decoder, its version, and where it starts."""
    frame, pos = _unsigned_varint(head, 0, "frame version")
    if frame != FRAME_VERSION:
        raise ProtocolError(f"metadata record has frame version {frame}; only {FRAME_VERSION} is supported")
    api_key, pos = _unsigned_varint(head, pos, "type")
    version, pos = _unsigned_varint(head, pos, "version")
    return decoder(record_class(api_key), version), version, pos


def decode_record(value: bytes) -> VersionedRecord:
    """The message and version inside a record's value."""
    # Frame version, types and versions are below 128 so far: one byte each.
    head = value[:3]
    read, version, start = _reader(head if head.isascii() else value[:15])
    message, end = read(value, start)
    if end != len(value):
        raise ProtocolError(f"{len(value) - end} bytes of garbage after a metadata record ({type(message).__name__})")
    return message, version


def metadata_batch(records: Sequence[VersionedRecord], *, base_offset: int, epoch: int, timestamp_ms: int) -> bytearray:
    """One batch of metadata records, as the active controller of `epoch` appends it."""
    return batches.build_batch(
        (batches.Record(0, timestamp_ms, None, encode_record(message, version)) for message, version in records),
        base_offset=base_offset,
        leader_epoch=epoch,
    )


def control_batch(records: Iterable[ControlMessage], *, base_offset: int, epoch: int, timestamp_ms: int) -> bytearray:
    """One batch of control records given as (type, message, message version)."""
    return batches.build_batch(
        (batches.Record(0, timestamp_ms, control_key(kind), encode(message, at)) for kind, message, at in records),
        base_offset=base_offset,
        leader_epoch=epoch,
        control=True,
    )


class ControlRecord:
    """A decoded control record: its type and message, None for types this version does not know."""

    __slots__ = ("kind", "message")

    def __init__(self, kind: ControlType, message: Any) -> None:
        self.kind = kind
        self.message = message


_CONTROL_CLASSES: dict[ControlType, type[Message]] = {
    ControlType.LEADER_CHANGE: control_records.LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: control_records.SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: control_records.SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: control_records.KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: control_records.VotersRecord,
}


def decode_control(key: bytes | None, value: bytes | None) -> ControlRecord:
    """The first field of every control message is its own version, so it is read to know how to read the rest."""
    kind = control_type(key)
    cls = _CONTROL_CLASSES.get(kind)
    if cls is None or value is None:
        return ControlRecord(kind, None)
    if len(value) < 2:
        raise ProtocolError(f"control record {kind.name} ends inside its version")
    version = min(int.from_bytes(value[:2], "big", signed=True), 1 if kind is ControlType.LEADER_CHANGE else 0)
    return ControlRecord(kind, decode(cls, version, value)[0])


class Batch:
    """A decoded batch of the metadata log or of a snapshot."""

    __slots__ = ("base_offset", "control", "epoch", "last_offset", "records", "size", "timestamp_ms")

    def __init__(self, header: batches.BatchHeader, records: list[Any]) -> None:
        self.base_offset = header.base_offset
        self.last_offset = header.last_offset
        self.epoch = header.partition_leader_epoch
        self.timestamp_ms = header.max_timestamp
        self.size = header.length
        self.control = header.is_control
        #: ControlRecord in a control batch, otherwise metadata messages, in the order of their offsets
        self.records = records


def decode_batches(data: bytes | bytearray | memoryview) -> Iterator[Batch]:
    """Every whole batch in `data`. A CRC that does not match raises: replaying half a state is worse than stopping."""
    view = memoryview(data)
    for pos, header in batches.iter_headers(view):
        end = pos + header.length
        if not batches.check_crc(view, pos, end):
            raise ProtocolError(f"metadata batch at offset {header.base_offset} fails its CRC")
        records: list[Any] = []
        for record in batches.iter_records(view[pos:end]):
            if header.is_control:
                records.append(decode_control(record.key, record.value))
            else:
                records.append(decode_record(record.value or b"")[0])
        yield Batch(header, records)
