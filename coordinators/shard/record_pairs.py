"""Records of the internal topics: a key message and a value message, each behind an int16.

In the key the int16 is the record's type, in the value the version it is written in. A null value deletes the key.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import NamedTuple

from pylogd.protocol.codec import decode, encoder
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.schema import Message

_INT16 = Struct(">h")

#: Classes of key and value by the type that opens a key.
RecordClasses = Mapping[int, tuple[type[Message], type[Message]]]


class CoordinatorRecord(NamedTuple):
    key: Message
    value: Message | None
    version: int = 0


def encode_record(record: CoordinatorRecord) -> tuple[bytearray, bytearray | None]:
    """Bytes of key and value."""
    message, content, version = record
    key = bytearray(_INT16.pack(message.API_KEY))
    encoder(type(message), 0)(message, key, None)
    if content is None:
        return key, None
    value = bytearray(_INT16.pack(version))
    encoder(type(content), version)(content, value, None)
    return key, value


def record_type(key: bytes | None) -> int:
    if key is None or len(key) < 2:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a coordinator record needs a key")
    kind: int = _INT16.unpack_from(key)[0]
    return kind


def decode_record(classes: RecordClasses, key: bytes | None, value: bytes | None) -> CoordinatorRecord | None:
    """The record; None when its type is not known here: a newer release wrote it."""
    known = classes.get(record_type(key))
    if known is None or key is None:
        return None
    key_class, value_class = known
    message, _ = decode(key_class, 0, key[2:])
    if value is None:
        return CoordinatorRecord(message, None)
    (version,) = _INT16.unpack_from(value)
    content, _ = decode(value_class, version, value[2:])
    return CoordinatorRecord(message, content, version)
