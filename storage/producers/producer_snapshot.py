"""The bytes of `<offset>.snapshot`: the producers of a log up to that offset, exclusive.

    version int16 = 1 | CRC-32C uint32 of everything behind it | count int32 | per producer, big endian:
    producer id int64, epoch int16, last sequence int32, last offset int64, offset delta int32, timestamp int64,
    coordinator epoch int32, first offset of the open transaction int64 (-1: none)

Only the last batch of each producer is kept, so after a restart a retry of an older one is out of order, as in Kafka.
A snapshot that fails its checks is deleted and an older one (or the whole log) is read instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from pylogd.protocol.crc import crc32c
from pylogd.runtime.files import FileSystem

SUFFIX = ".snapshot"
_VERSION = 1
_HEAD = Struct(">hIi")
_ROW = Struct(">qhiqiqiq")
_CRC_START = 6


class CorruptSnapshot(Exception):
    pass


class Row(NamedTuple):
    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    txn_first_offset: int


def path(directory: str, offset: int) -> str:
    return f"{directory}/{offset:020d}{SUFFIX}"


def offsets_in(files: FileSystem, directory: str) -> list[int]:
    """The offsets of the snapshots in a log's directory."""
    if not files.exists(directory):
        return []
    names = (name[: -len(SUFFIX)] for name in files.listdir(directory) if name.endswith(SUFFIX))
    return sorted(int(stem) for stem in names if stem.isdigit())


def encode(rows: Sequence[Row]) -> bytes:
    data = bytearray(_HEAD.size + _ROW.size * len(rows))
    for n, row in enumerate(rows):
        _ROW.pack_into(data, _HEAD.size + n * _ROW.size, *row)
    _HEAD.pack_into(data, 0, _VERSION, 0, len(rows))
    _HEAD.pack_into(data, 0, _VERSION, crc32c(memoryview(data)[_CRC_START:]), len(rows))
    return bytes(data)


def decode(data: bytes) -> list[Row]:
    try:
        version, crc, count = _HEAD.unpack_from(data)
    except StructError:
        raise CorruptSnapshot("snapshot is too short") from None
    if version != _VERSION:
        raise CorruptSnapshot(f"snapshot contained an unknown file version {version}")
    if crc != crc32c(data[_CRC_START:]):
        raise CorruptSnapshot("snapshot is corrupt (CRC is no longer valid)")
    if len(data) != _HEAD.size + count * _ROW.size:
        raise CorruptSnapshot(f"snapshot of {len(data)} bytes cannot hold {count} entries")
    return [Row(*fields) for fields in _ROW.iter_unpack(memoryview(data)[_HEAD.size :])]
