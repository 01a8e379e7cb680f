"""Request frames packed by hand, so that the raw load costs next to nothing and depends on no codec under test.

Produce version 8 and Fetch version 11, the last versions before flexible encoding: their responses have a fixed length
for a fixed topic, so a pipelining client can count replies by counting bytes.
"""

from __future__ import annotations

import struct

import crc32c

PRODUCE, FETCH = 0, 1
PRODUCE_VERSION, FETCH_VERSION = 8, 11


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack(">h", len(raw)) + raw


def _frame(key: int, version: int, body: bytes) -> bytes:
    header = struct.pack(">hhi", key, version, 7) + _string("bench")
    return struct.pack(">i", len(header) + len(body)) + header + body


def _varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def batch(record_count: int, value_size: int, timestamp_ms: int) -> bytes:
    """One v2 record batch of identical values without keys or headers."""
    value = b"x" * value_size
    records = bytearray()
    for delta in range(record_count):
        body = b"\x00" + _varint(0) + _varint(delta) + _varint(-1) + _varint(len(value)) + value + _varint(0)
        records += _varint(len(body)) + body
    covered = struct.pack(
        ">hiqqqhii", 0, record_count - 1, timestamp_ms, timestamp_ms, -1, -1, -1, record_count
    ) + bytes(records)
    tail = struct.pack(">ibI", -1, 2, crc32c.crc32c(covered)) + covered
    return struct.pack(">qi", 0, len(tail)) + tail


def produce(topic: str, partition: int, records: bytes, acks: int = -1) -> bytes:
    body = struct.pack(">hhii", -1, acks, 30_000, 1) + _string(topic)
    body += struct.pack(">iii", 1, partition, len(records)) + records
    return _frame(PRODUCE, PRODUCE_VERSION, body)


def produce_reply_size(topic: str) -> int:
    """Whole frame: size, correlation id, one topic, one partition without record errors, throttle time."""
    return 4 + 4 + 4 + (2 + len(topic)) + 4 + (4 + 2 + 8 + 8 + 8 + 4 + 2) + 4


# Where the one partition's error code stands in a Produce reply frame, counted from the end of the topic name.
PRODUCE_ERROR_AFTER_TOPIC = 4 + 4


def produce_error(reply: bytes | memoryview, topic: str) -> int:
    position = 4 + 4 + 4 + 2 + len(topic) + PRODUCE_ERROR_AFTER_TOPIC
    code: int = struct.unpack_from(">h", reply, position)[0]
    return code


def fetch(topic: str, partition: int, offset: int, max_bytes: int, max_wait_ms: int = 500) -> bytes:
    body = struct.pack(">iiiibii", -1, max_wait_ms, 1, max_bytes, 0, 0, -1)
    body += struct.pack(">i", 1) + _string(topic)
    body += struct.pack(">iiiqqi", 1, partition, -1, offset, -1, max_bytes)
    body += struct.pack(">i", 0) + _string("")
    return _frame(FETCH, FETCH_VERSION, body)


def fetch_records_position(topic: str) -> int:
    """Where the length of the records stands in a Fetch reply frame of one partition without aborted transactions."""
    return 4 + 4 + 4 + 2 + 4 + 4 + (2 + len(topic)) + 4 + 4 + 2 + 8 + 8 + 8 + 4 + 4


def fetch_error(reply: bytes | memoryview, topic: str) -> int:
    top: int = struct.unpack_from(">h", reply, 12)[0]
    partition: int = struct.unpack_from(">h", reply, 4 + 4 + 4 + 2 + 4 + 4 + (2 + len(topic)) + 4 + 4)[0]
    return top or partition


def next_offset(records: memoryview) -> int | None:
    """The offset after the last complete batch."""
    position, found = 0, None
    while position + 61 <= len(records):
        base, length = struct.unpack_from(">qi", records, position)
        if position + 12 + length > len(records):
            break
        found = base + struct.unpack_from(">i", records, position + 23)[0] + 1
        position += 12 + length
    return found
