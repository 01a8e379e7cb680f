"""The short look at a header passes what needs no other, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack_into

import pytest
from pylogd.protocol.batch import compute_crc
from pylogd.protocol.compression import GZIP
from pylogd.storage.log.plain_header import plain_header
from support.logs import NOW_MS, batch

SIZE_MAX = 1000


def look(records: memoryview) -> tuple[int, int, int | None] | None:
    found = plain_header(records, SIZE_MAX, NOW_MS + 10)
    if found is None:
        return None
    delta, max_timestamp, header = found
    return delta, max_timestamp - NOW_MS, None if header is None else header.producer_id


@pytest.mark.parametrize(
    ("records", "found"),
    [
        (batch(), (0, 0, None)),
        (batch(3), (2, 2, None)),
        (batch(3, compression=GZIP), (2, 2, None)),
        (batch(transactional=True), (0, 0, None)),
        (batch(2, producer_id=7, producer_epoch=1, base_sequence=0), (1, 1, 7)),
        (batch(2, producer_id=7, producer_epoch=1, base_sequence=0, transactional=True), (1, 1, 7)),
        (batch(timestamp=NOW_MS + 10), (0, 10, None)),
        (batch(timestamp=NOW_MS + 11), None),
        (batch(producer_id=7, producer_epoch=1), None),
        (batch(base_offset=1), None),
        (batch(control=True), None),
        (batch(timestamp_type=1, log_append_time=NOW_MS), None),
        (batch(size=SIZE_MAX), None),
        (batch(0), None),
        (batch()[:-1], None),
        (batch()[:60], None),
        (memoryview(bytearray(bytes(batch()) + bytes(batch()))), None),
        (memoryview(bytearray()), None),
    ],
)
def test_what_needs_no_closer_look(records: memoryview, found: tuple[int, int, int | None] | None) -> None:
    assert look(records) == found


@pytest.mark.parametrize(
    "spoil",
    [
        lambda records: pack_into(">b", records, 16, 1),  # magic
        lambda records: pack_into(">h", records, 21, 5),  # a codec that does not exist
        lambda records: pack_into(">h", records, 21, -1),
        lambda records: pack_into(">i", records, 23, 1),  # last offset delta
        lambda records: pack_into(">i", records, 57, 2),  # count
    ],
)
def test_one_wrong_field_is_enough(spoil: Callable[[memoryview], None]) -> None:
    records = batch()
    spoil(records)
    pack_into(">I", records, 17, compute_crc(records))
    assert look(records) is None


def test_a_wrong_checksum() -> None:
    records = batch()
    records[-1] ^= 1
    assert look(records) is None
