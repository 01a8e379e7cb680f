"""Record batches of magic 2, the only format written since Kafka 4.

The 61 bytes that open a batch, big endian:
     0 base offset int64                21 attributes int16           43 producer id int64
     8 length int32 (behind byte 12)    23 last offset delta int32    51 producer epoch int16
    12 partition leader epoch int32     27 base timestamp int64       53 base sequence int32
    16 magic int8 = 2                   35 max timestamp int64        57 record count int32
    17 CRC-32C uint32 of everything from byte 21 on
then the records, compressed as a whole when the attributes say so.

Attributes: 0-2 codec, 3 timestamp type (1 = LogAppendTime: the max timestamp is every record's timestamp), 4
transactional, 5 control, 6 delete horizon (the base timestamp field holds the time at which tombstones may go; deltas
are against it).

The CRC leaves out base offset, length and leader epoch, so a leader stamps those in place without touching the records.
Records stay opaque unless somebody iterates them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from struct import error as StructError

from pylogd.protocol import compression as codecs
from pylogd.protocol.crc import crc32c
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.records import Header as Header
from pylogd.protocol.records import RawRecord as RawRecord
from pylogd.protocol.records import Record as Record
from pylogd.protocol.records import append_record, parse_headers, walk

HEADER_SIZE = 61
LOG_OVERHEAD = 12
MAGIC = 2
MAGIC_POS = 16
CRC_POS = 17
ATTRIBUTES_POS = 21

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1
CREATE_TIME = 0
LOG_APPEND_TIME = 1
SEQUENCE_MAX = 0x7FFFFFFF

CODEC_MASK = 0x07
TIMESTAMP_TYPE_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40

# A legacy message (magic 0) is at least this long after its offset and size: what Kafka checks before looking at the
# magic.
_LEGACY_OVERHEAD = 14

_HEADER = Struct(">qiibIhiqqqhii")
_PREFIX = Struct(">qiib")
_COVERED = Struct(">hiqqqhii")
_INT64 = Struct(">q")
_INT32 = Struct(">i")
_UINT32 = Struct(">I")
_INT16 = Struct(">h")

_unpack_header = _HEADER.unpack_from

Buffer = bytes | bytearray | memoryview


class BatchHeader:
    """The fixed part of a batch. `length` is the size of the whole batch in bytes, the first twelve included."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "crc",
        "last_offset_delta",
        "length",
        "magic",
        "max_timestamp",
        "partition_leader_epoch",
        "producer_epoch",
        "producer_id",
        "record_count",
    )

    def __init__(
        self,
        base_offset: int,
        length: int,
        partition_leader_epoch: int,
        magic: int,
        crc: int,
        attributes: int,
        last_offset_delta: int,
        base_timestamp: int,
        max_timestamp: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        record_count: int,
    ) -> None:
        self.base_offset = base_offset
        self.length = length + 12
        self.partition_leader_epoch = partition_leader_epoch
        self.magic = magic
        self.crc = crc
        self.attributes = attributes
        self.last_offset_delta = last_offset_delta
        self.base_timestamp = base_timestamp
        self.max_timestamp = max_timestamp
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.record_count = record_count

    @property
    def compression(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> int:
        return LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_FLAG else CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def has_delete_horizon(self) -> bool:
        return bool(self.attributes & DELETE_HORIZON_FLAG)

    @property
    def delete_horizon_ms(self) -> int | None:
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)

    def __repr__(self) -> str:
        return (
            f"BatchHeader(offsets=[{self.base_offset}, {self.last_offset}], length={self.length}, "
            f"leader_epoch={self.partition_leader_epoch}, attributes={self.attributes:#x}, count={self.record_count}, "
            f"producer=({self.producer_id}, {self.producer_epoch}, {self.base_sequence}))"
        )


def increment_sequence(sequence: int, increment: int) -> int:
    """Sequences wrap from 2^31 - 1 to 0."""
    return (sequence + increment) & SEQUENCE_MAX


def parse_header(view: Buffer, pos: int = 0) -> BatchHeader:
    """The header at `pos`; only its shape is checked. CORRUPT_MESSAGE when it cannot be one,
    UNSUPPORTED_FOR_MESSAGE_FORMAT for the older magics. Whether the whole batch is there is the caller's business:
    `length` tells."""
    try:
        header = BatchHeader(*_unpack_header(view, pos))
    except StructError:
        if _is_legacy(view, pos):
            raise _legacy() from None
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"{len(view) - pos} bytes are too few for a record batch header"
        ) from None
    if header.magic != MAGIC:
        if _is_legacy(view, pos):
            raise _legacy()
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"invalid magic {header.magic} in record batch")
    if header.length < HEADER_SIZE:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"record batch length {header.length} is below the minimum {HEADER_SIZE}"
        )
    return header


def _is_legacy(view: Buffer, pos: int) -> bool:
    """Zeros, as a crash leaves them at the end of a file, are no message of magic 0: those have a length."""
    return (
        len(view) - pos > MAGIC_POS
        and view[pos + MAGIC_POS] in (0, 1)
        and _INT32.unpack_from(view, pos + 8)[0] >= _LEGACY_OVERHEAD
    )


def _legacy() -> KafkaError:
    return KafkaError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, "message formats before 2 are not supported")


def iter_headers(view: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of every whole batch; a torn batch at the end is left out, as in a fetch response."""
    pos, end = 0, len(view)
    while end - pos >= HEADER_SIZE:
        header = parse_header(view, pos)
        if header.length > end - pos:
            return
        yield pos, header
        pos += header.length


def batch_end(view: Buffer, pos: int = 0) -> int | None:
    """Where the batch at `pos` ends, of any magic; None when it is not all there. CORRUPT_MESSAGE as Kafka's reader
    decides."""
    remaining = len(view) - pos
    if remaining < LOG_OVERHEAD:
        return None
    size: int = _INT32.unpack_from(view, pos + 8)[0]
    if size < _LEGACY_OVERHEAD:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"record size {size} is less than the minimum record overhead ({_LEGACY_OVERHEAD})",
        )
    if remaining <= MAGIC_POS:
        return None
    magic = view[pos + MAGIC_POS]
    if magic > MAGIC:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"invalid magic found in record: {magic}")
    if remaining < size + LOG_OVERHEAD:
        return None
    return pos + size + LOG_OVERHEAD


def compute_crc(view: Buffer, pos: int = 0, end: int | None = None) -> int:
    return crc32c(memoryview(view)[pos + ATTRIBUTES_POS : end])


def check_crc(view: Buffer, pos: int = 0, end: int | None = None) -> bool:
    """Does the checksum of the batch that spans exactly [pos, end) hold?"""
    stored: int = _UINT32.unpack_from(view, pos + CRC_POS)[0]
    return stored == crc32c(memoryview(view)[pos + ATTRIBUTES_POS : end])


def stamp(view: bytearray | memoryview, base_offset: int, leader_epoch: int, pos: int = 0) -> None:
    """Give a batch its place in the log. The CRC does not cover these fields."""
    _INT64.pack_into(view, pos, base_offset)
    _INT32.pack_into(view, pos + 12, leader_epoch)


def set_max_timestamp(view: bytearray | memoryview, timestamp_type: int, max_timestamp: int) -> None:
    """Rewrite timestamp type and max timestamp of the one batch in `view`, and its CRC if anything changed."""
    attributes: int = _INT16.unpack_from(view, ATTRIBUTES_POS)[0]
    wanted = attributes & ~TIMESTAMP_TYPE_FLAG | (TIMESTAMP_TYPE_FLAG if timestamp_type else 0)
    if wanted == attributes and _INT64.unpack_from(view, 35)[0] == max_timestamp:
        return
    _INT16.pack_into(view, ATTRIBUTES_POS, wanted)
    _INT64.pack_into(view, 35, max_timestamp)
    _UINT32.pack_into(view, CRC_POS, compute_crc(view))


def payload(view: Buffer, header: BatchHeader, pos: int = 0, max_size: int = codecs.OUTPUT_BYTES_MAX) -> bytes:
    """The records of a batch as uncompressed bytes; CompressionError when they do not unpack."""
    data = memoryview(view)[pos + HEADER_SIZE : pos + header.length]
    return codecs.decompress(header.attributes & CODEC_MASK, data, max_size)


def iter_records(view: Buffer, max_size: int = codecs.OUTPUT_BYTES_MAX) -> Iterator[Record]:
    """The records of every whole batch in `view`, decompressed as they are reached; control records too.

    INVALID_RECORD when a batch does not hold what its header says, CORRUPT_MESSAGE when it does not unpack."""
    for pos, header in iter_headers(view):
        yield from batch_records(view, header, pos, max_size)


def batch_records(
    view: Buffer, header: BatchHeader, pos: int = 0, max_size: int = codecs.OUTPUT_BYTES_MAX
) -> Iterator[Record]:
    if header.record_count < 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"found invalid record count {header.record_count}")
    if header.record_count == 0:
        return
    try:
        data = payload(view, header, pos, max_size)
    except codecs.CompressionError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.timestamp_type == LOG_APPEND_TIME else None
    for raw in walk(data, header.record_count):
        yield Record(
            base_offset + raw.offset_delta,
            base_timestamp + raw.timestamp_delta if append_time is None else append_time,
            None if raw.key_size < 0 else data[raw.key_pos : raw.key_pos + raw.key_size],
            None if raw.value_size < 0 else data[raw.value_pos : raw.value_pos + raw.value_size],
            parse_headers(data, raw.headers_pos, raw.header_count) if raw.header_count else (),
        )


def assemble(
    records: Buffer,
    *,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
) -> bytearray:
    """A batch from its header fields and its already encoded (and compressed) records."""
    out = bytearray(HEADER_SIZE + len(records))
    out[HEADER_SIZE:] = records
    _PREFIX.pack_into(out, 0, base_offset, len(out) - LOG_OVERHEAD, leader_epoch, MAGIC)
    _COVERED.pack_into(
        out,
        ATTRIBUTES_POS,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    _UINT32.pack_into(out, CRC_POS, compute_crc(out))
    return out


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    compression: int = codecs.NONE,
    level: int | None = None,
    timestamp_type: int = CREATE_TIME,
    log_append_time: int = NO_TIMESTAMP,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = NO_LEADER_EPOCH,
    delete_horizon: int | None = None,
    keep_offsets: bool = False,
) -> bytearray:
    """One batch of `records`, numbered from `base_offset` in order, or at their own offsets with `keep_offsets`.

    The base timestamp is the first record's (or the delete horizon), the max timestamp the largest, or
    `log_append_time` when that is the timestamp type."""
    body = bytearray()
    base_timestamp = NO_TIMESTAMP if delete_horizon is None else delete_horizon
    first = delete_horizon is None
    max_timestamp = NO_TIMESTAMP
    count = 0
    delta = -1
    for record in records:
        timestamp = record.timestamp
        if first:
            base_timestamp, first = timestamp, False
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        delta = record.offset - base_offset if keep_offsets else count
        append_record(body, delta, timestamp - base_timestamp, record.key, record.value, record.headers)
        count += 1
    attributes = compression
    if timestamp_type == LOG_APPEND_TIME:
        attributes |= TIMESTAMP_TYPE_FLAG
        max_timestamp = log_append_time
    if transactional:
        attributes |= TRANSACTIONAL_FLAG
    if control:
        attributes |= CONTROL_FLAG
    if delete_horizon is not None:
        attributes |= DELETE_HORIZON_FLAG
    return assemble(
        codecs.compress(compression, body, level) if compression and count else body,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=attributes if count else attributes & ~CODEC_MASK,
        last_offset_delta=delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=count,
    )
