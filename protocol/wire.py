"""Kafka's primitive wire types, and the out-of-line pieces that generated codecs call.

Fixed-width integers are big-endian two's complement. Variable-length values carry a length first:

    type        before flexible versions          in flexible versions
    string      int16 length, -1 is null          unsigned varint length + 1, 0 is null
    bytes       int32 length, -1 is null          unsigned varint length + 1, 0 is null
    records     int32 length, -1 is null          unsigned varint length + 1, 0 is null
    array       int32 count, -1 is null           unsigned varint count + 1, 0 is null
    struct      its fields; if nullable, one byte before them: 1 present, -1 null
    tags        absent                            unsigned varint count, then per field: tag, size, that many bytes

An unsigned varint holds seven bits per byte, lowest first, the top bit saying that more follow; five bytes at most.
"""

from __future__ import annotations

from struct import Struct
from typing import Annotated, Any, Final, NoReturn

from pylogd.protocol.errors import ProtocolError


class Fixed:
    """Marks an annotation as a fixed-width type: its `struct` format and width."""

    __slots__ = ("format", "size")

    def __init__(self, format: str, size: int) -> None:
        self.format = format
        self.size = size


class RecordData:
    """Marks an annotation as record batches: decoded to a slice of the input, encoded without a copy if possible."""

    __slots__ = ()


Int8 = Annotated[int, Fixed("b", 1)]
Int16 = Annotated[int, Fixed("h", 2)]
Int32 = Annotated[int, Fixed("i", 4)]
Int64 = Annotated[int, Fixed("q", 8)]
UInt16 = Annotated[int, Fixed("H", 2)]
UInt32 = Annotated[int, Fixed("I", 4)]
Uuid = Annotated[bytes, Fixed("16s", 16)]
Records = Annotated[Any, RecordData()]

BOOL: Final = Fixed("?", 1)
FLOAT64: Final = Fixed("d", 8)

STRING_BYTES_MAX: Final = 0x7FFF
# Record data up to this size is copied into the message; bigger data is left out for the caller to interleave.
RECORDS_COPY_BYTES_MAX: Final = 2048

_INT32: Final = Struct(">i")
_TWO_BYTES: Final = Struct("BB")


def uvarint_tail(view: bytes | memoryview, pos: int, first: int) -> tuple[int, int]:
    """Finish an unsigned varint whose first byte (top bit set) was read; `pos` is behind it."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = view[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0x7FFFFFFF:
                raise ProtocolError("varint beyond 31 bits")
            return value, pos
    raise ProtocolError("varint longer than five bytes")


def string_length_tail(view: bytes | memoryview, pos: int, first: int) -> tuple[int, int]:
    """`uvarint_tail` of a compact string's length, which is one more than the byte count."""
    value, pos = uvarint_tail(view, pos, first)
    if value > STRING_BYTES_MAX + 1:
        raise ProtocolError(f"string of {value - 1} bytes is longer than {STRING_BYTES_MAX}")
    return value, pos


def read_uvarint(view: bytes | memoryview, pos: int) -> tuple[int, int]:
    first = view[pos]
    if first < 0x80:
        return first, pos + 1
    return uvarint_tail(view, pos + 1, first)


def put_uvarint(buf: bytearray, value: int) -> None:
    while value > 0x7F:
        buf.append(value & 0x7F | 0x80)
        value >>= 7
    buf.append(value)


def put_string_length(buf: bytearray, value: int) -> None:
    """Compact string length (already one more than the byte count) that did not fit in one byte."""
    if value > STRING_BYTES_MAX + 1:
        raise ValueError(f"string of {value - 1} bytes is longer than {STRING_BYTES_MAX}")
    put_uvarint(buf, value)


def skip_tags(view: bytes | memoryview, pos: int, end: int, count: int) -> int:
    """Step over a struct's tagged fields, whose count's first byte was read; none of them is known to us."""
    if count > 0x7F:
        count, pos = uvarint_tail(view, pos, count)
    for _ in range(count):
        _, pos = read_uvarint(view, pos)
        size, pos = read_uvarint(view, pos)
        pos += size
        if pos > end:
            truncated()
    return pos


def put_tag(buf: bytearray, tag: int, payload: bytearray) -> None:
    put_uvarint(buf, tag)
    put_uvarint(buf, len(payload))
    buf += payload


def put_records(buf: bytearray, splits: list[tuple[int, Any]] | None, records: Any, compact: bool) -> None:
    """Write record data with its length. Big data, and file ranges (anything with a `size`), only leave their length
    in `buf`; `(position in buf, data)` goes to `splits` so that the caller can interleave them without a copy."""
    if records is None:
        buf += b"\x00" if compact else b"\xff\xff\xff\xff"
        return
    size = getattr(records, "size", -1)
    apart = size >= 0
    if not apart:
        size = len(records)
        apart = splits is not None and size > RECORDS_COPY_BYTES_MAX
    if not compact:
        buf += _INT32.pack(size)
    elif 126 < size < 0x3FFF:
        buf += _TWO_BYTES.pack(size + 1 & 0x7F | 0x80, size + 1 >> 7)
    else:
        put_uvarint(buf, size + 1)
    if not apart:
        buf += records
    elif splits is None:
        raise TypeError("a file range can only be encoded into chunks")
    else:
        splits.append((len(buf), records))


# The raising branches of generated code, out of line to keep it short.
def truncated() -> NoReturn:
    raise ProtocolError("message ends too early")


def bad_null(field: str) -> NoReturn:
    raise ProtocolError(f"{field} must not be null")


def bad_length(field: str, count: int) -> NoReturn:
    if count < 0:
        bad_null(field)
    raise ProtocolError(f"{field} claims {count} elements or bytes, more than the message holds")


def bad_tag_size(field: str) -> NoReturn:
    raise ProtocolError(f"{field} does not fill its tag's size")
