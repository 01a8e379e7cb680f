"""The records inside a v2 batch: one at a time, from bytes and to bytes.

A record is, with every integer a zigzag varint:
    length (of what follows) | attributes int8 (unused) | timestamp delta | offset delta
    | key length, key | value length, value | header count | headers: key length, key, value length, value
A length of -1 is null. Deltas are against the base timestamp and base offset of the batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pylogd.protocol.errors import ErrorCode, KafkaError

Header = tuple[str, bytes | None]


class Record:
    """One record with absolute offset and timestamp. Header keys that are not UTF-8 survive as surrogate escapes."""

    __slots__ = ("headers", "key", "offset", "timestamp", "value")

    def __init__(
        self, offset: int, timestamp: int, key: bytes | None, value: bytes | None, headers: Sequence[Header] = ()
    ) -> None:
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.headers = headers

    def __repr__(self) -> str:
        return f"Record({self.offset}, {self.timestamp}, {self.key!r}, {self.value!r}, {list(self.headers)!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return (self.offset, self.timestamp, self.key, self.value, list(self.headers)) == (
            other.offset,
            other.timestamp,
            other.key,
            other.value,
            list(other.headers),
        )

    __hash__ = None  # type: ignore[assignment]


class RawRecord(NamedTuple):
    """Where the parts of one record lie in the uncompressed payload; a length of -1 is null.

    `tail` is the position after the timestamp delta: from there to `end` the bytes do not depend on the base timestamp,
    so a rewritten batch can copy them.
    """

    start: int
    end: int
    timestamp_delta: int
    offset_delta: int
    tail: int
    key_pos: int
    key_size: int
    value_pos: int
    value_size: int
    header_count: int
    headers_pos: int


def read_varint(data: bytes, pos: int) -> tuple[int, int]:
    """A zigzag varint of at most 64 bits and the position after it; IndexError past the end, ValueError when too
    long."""
    byte = data[pos]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), pos + 1
    raw = byte & 0x7F
    shift = 7
    while True:
        pos += 1
        byte = data[pos]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), pos + 1
        shift += 7
        if shift > 63:
            raise ValueError("varint is too long")


def append_varint(out: bytearray, value: int) -> None:
    raw = (value << 1) ^ (value >> 63)
    while raw > 0x7F:
        out.append((raw & 0x7F) | 0x80)
        raw >>= 7
    out.append(raw)


def varint_size(value: int) -> int:
    raw = (value << 1) ^ (value >> 63)
    return max(1, (raw.bit_length() + 6) // 7)


def walk(payload: bytes, count: int) -> Iterator[RawRecord]:
    """The records of an uncompressed payload; INVALID_RECORD when it holds anything but exactly `count` well-formed
    ones."""
    pos = 0
    end_of_payload = len(payload)
    read = read_varint
    new = tuple.__new__
    for _ in range(count):
        start = pos
        try:
            size, body = read(payload, pos)
            end = body + size
            if size < 0 or end > end_of_payload:
                raise _invalid(f"invalid record size {size} with {end_of_payload - body} bytes left in the batch")
            timestamp_delta, tail = read(payload, body + 1)
            offset_delta, pos = read(payload, tail)
            key_size, key_pos = read(payload, pos)
            value_size, value_pos = read(payload, key_pos + key_size if key_size > 0 else key_pos)
            header_count, headers_pos = read(payload, value_pos + value_size if value_size > 0 else value_pos)
            pos = _skip_headers(payload, headers_pos, header_count, end) if header_count else headers_pos
        except (IndexError, ValueError):
            raise _invalid("found invalid record structure") from None
        if pos != end:
            raise _invalid(f"expected to read {size} bytes in record payload, but instead read {pos - body}")
        # The fields in order, past the named tuple's own constructor: a seventh of the time of this loop.
        yield new(
            RawRecord,
            (
                start,
                end,
                timestamp_delta,
                offset_delta,
                tail,
                key_pos,
                key_size,
                value_pos,
                value_size,
                header_count,
                headers_pos,
            ),
        )
    if pos != end_of_payload:
        raise _invalid("incorrect declared batch size, records still remaining")


def _skip_headers(payload: bytes, pos: int, count: int, end: int) -> int:
    if count < 0 or count > end - pos:
        raise _invalid(f"found invalid number of record headers {count}")
    for _ in range(count):
        size, pos = read_varint(payload, pos)
        if size < 0:
            raise _invalid(f"invalid negative header key size {size}")
        size, pos = read_varint(payload, pos + size)
        if size > 0:
            pos += size
    return pos


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)


def parse_headers(payload: bytes, pos: int, count: int) -> list[Header]:
    """The headers that `walk` found well-formed."""
    headers: list[Header] = []
    for _ in range(count):
        size, pos = read_varint(payload, pos)
        key = str(payload[pos : pos + size], "utf-8", "surrogateescape")
        pos += size
        size, pos = read_varint(payload, pos)
        if size < 0:
            headers.append((key, None))
        else:
            headers.append((key, bytes(payload[pos : pos + size])))
            pos += size
    return headers


def append_record(
    out: bytearray,
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | memoryview | None,
    value: bytes | memoryview | None,
    headers: Sequence[Header] = (),
) -> None:
    body = bytearray(1)  # attributes
    append_varint(body, timestamp_delta)
    append_varint(body, offset_delta)
    if key is None:
        body.append(1)
    else:
        append_varint(body, len(key))
        body += key
    if value is None:
        body.append(1)
    else:
        append_varint(body, len(value))
        body += value
    append_varint(body, len(headers))
    for name, content in headers:
        raw = name.encode("utf-8", "surrogateescape")
        append_varint(body, len(raw))
        body += raw
        if content is None:
            body.append(1)
        else:
            append_varint(body, len(content))
            body += content
    append_varint(out, len(body))
    out += body


def append_plain_record(
    out: bytearray, offset_delta: int, key: bytes | bytearray, value: bytes | bytearray | None
) -> None:
    """A record with a key, no headers and the timestamp of its batch: what coordinators write."""
    if value is None:
        body = b"".join((b"\0\0", _short(offset_delta), _short(len(key)), key, b"\1\0"))
    else:
        size = _short(len(value))
        body = b"".join((b"\0\0", _short(offset_delta), _short(len(key)), key, size, value, b"\0"))
    out += _short(len(body))
    out += body


#: What `append_plain_record` adds to key and value at most: attributes, timestamp delta and header count take a byte
#: each, the four other numbers up to five.
PLAIN_OVERHEAD_MAX = 3 + 4 * 5


def plain_record_size(offset_delta: int, key: bytes | bytearray, value: bytes | bytearray | None) -> int:
    """How many bytes `append_plain_record` would append."""
    size = 3 + varint_size(offset_delta) + varint_size(len(key)) + len(key)
    size += 1 if value is None else varint_size(len(value)) + len(value)
    return varint_size(size) + size


def _short(value: int) -> bytes | bytearray:
    """The varint of a number that is not negative; most are small."""
    if value < len(_SMALL):
        return _SMALL[value]
    out = bytearray()
    append_varint(out, value)
    return out


_SMALL = [bytes((n << 1,)) if n < 64 else bytes((n << 1 & 0x7F | 0x80, n >> 6)) for n in range(256)]


def append_moved(out: bytearray, payload: bytes, raw: RawRecord, timestamp_delta: int) -> None:
    """Copy a record whose base timestamp changed: only the length and the timestamp delta are written anew."""
    if timestamp_delta == raw.timestamp_delta:
        out += payload[raw.start : raw.end]
        return
    append_varint(out, 1 + varint_size(timestamp_delta) + raw.end - raw.tail)
    out.append(0)
    append_varint(out, timestamp_delta)
    out += payload[raw.tail : raw.end]
