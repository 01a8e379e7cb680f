"""The short look at a batch that is produced: what its header alone can settle.

Nearly every batch passes and is appended as it lies. One that does not is left to `validation`, which knows what is
wrong with it or makes it fit the topic.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError

from pylogd.protocol.batch import ATTRIBUTES_POS, TRANSACTIONAL_FLAG, BatchHeader
from pylogd.protocol.crc import crc32c

_unpack_all = Struct(">qiibIhiqqqhii").unpack_from
#: The same without leader epoch, base timestamp and producer epoch, which only producers' books need.
_unpack = Struct(">qi4xbIhi8xqq2xii").unpack_from
_COVERED_BY_CRC = slice(ATTRIBUTES_POS, None)

#: Attributes of a batch that needs no look beyond its header: any codec, transactional or not.
_PLAIN_ATTRIBUTES = frozenset(codec | transactional for codec in range(5) for transactional in (0, TRANSACTIONAL_FLAG))


def plain_header(records: memoryview, size_max: int, timestamp_max: int) -> tuple[int, int, BatchHeader | None] | None:
    """Last offset delta, largest timestamp and, if a producer id makes it necessary, the whole header of the one batch
    in `records`. None when there is more to look at than its header."""
    try:
        base_offset, length, magic, crc, attributes, delta, max_timestamp, producer_id, sequence, count = _unpack(
            records, 0
        )
    except StructError:
        return None
    if (
        length + 12 == len(records)
        and length + 12 <= size_max
        and magic == 2
        and base_offset == 0
        and count == delta + 1
        and count > 0
        and attributes in _PLAIN_ATTRIBUTES
        and max_timestamp <= timestamp_max
        and (producer_id < 0 or sequence >= 0)
        and crc == crc32c(records[_COVERED_BY_CRC])
    ):
        return delta, max_timestamp, BatchHeader(*_unpack_all(records, 0)) if producer_id >= 0 else None
    return None
