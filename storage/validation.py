"""What a log accepts: the checks between a produced batch and its place in the log, with Kafka's error codes and order.

Usually only the 61 bytes of the header and the CRC are looked at. The records are unpacked when something depends on
them: a compacted topic needs keys, a bound on old timestamps needs the smallest one, a timestamp too far ahead needs
the list of offenders, another `compression.type` needs new bytes, and `pylogd.record.validation=full` asks for it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from pylogd.protocol import batch
from pylogd.protocol import compression as codecs
from pylogd.protocol.batch import BatchHeader
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.records import RawRecord, append_moved, append_varint, varint_size, walk
from pylogd.storage.log_config import INT64_MAX, LogConfig

# Record errors listed in one reply: a hostile batch of a million bad records must not make a reply of a hundred
# megabytes.
_RECORD_ERRORS_MAX = 1000


class Origin(IntEnum):
    """Who appends, which decides what must be checked."""

    REPLICATION = 0
    COORDINATOR = 1
    CLIENT = 2
    RAFT_LEADER = 3


class RecordError(NamedTuple):
    batch_index: int
    message: str


class InvalidRecords(KafkaError):
    """Some records of a batch were refused; the reply names them."""

    def __init__(self, code: ErrorCode, message: str, record_errors: list[RecordError]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class Validated:
    """One batch that may be appended: `view` is writable and ready to be stamped, `header` describes it (its base
    offset and leader epoch are still the producer's). `log_append_time_ms` is -1 unless the topic uses
    LogAppendTime."""

    __slots__ = ("header", "log_append_time_ms", "max_timestamp", "view")

    def __init__(self, view: memoryview, header: BatchHeader, max_timestamp: int, log_append_time_ms: int) -> None:
        self.view = view
        self.header = header
        self.max_timestamp = max_timestamp
        self.log_append_time_ms = log_append_time_ms


def validate_produce_records(view: memoryview | None, version: int = 13) -> memoryview:
    """The shape a Produce request promises: one whole batch, magic 2. Returns that batch without any torn bytes behind
    it."""
    end = None if view is None else batch.batch_end(view)
    if view is None or end is None:
        raise _invalid_record(
            f"Produce requests with version {version} must have at least one record batch per partition"
        )
    if view[batch.MAGIC_POS] != batch.MAGIC:
        raise _invalid_record(
            f"Produce requests with version {version} are only allowed to contain record batches with magic version 2"
        )
    if end < batch.HEADER_SIZE:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"the size {end} is smaller than the minimum allowed overhead {batch.HEADER_SIZE}",
        )
    if version < 7 and view[batch.ATTRIBUTES_POS + 1] & batch.CODEC_MASK == codecs.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce requests with version {version} are not allowed to use ZStandard compression",
        )
    if end == len(view):
        return view
    if batch.batch_end(view, end) is not None:
        raise _invalid_record(
            f"Produce requests with version {version} are only allowed to contain exactly one record batch "
            "per partition"
        )
    return view[:end]


def validate_append(
    view: memoryview,
    config: LogConfig,
    now_ms: int,
    *,
    origin: Origin = Origin.CLIENT,
    version: int = 13,
    log: str = "",
) -> Validated:
    """Check one batch from a client or a coordinator and fit it to the topic (timestamp type, compression); KafkaError
    if refused.

    `log` names the partition in messages, `version` is that of the Produce request."""
    size = len(view)
    if size < batch.HEADER_SIZE or view[batch.MAGIC_POS] != batch.MAGIC:
        view = validate_produce_records(view, version)
    header = batch.parse_header(view)
    if header.length != size or version < 7:
        view = validate_produce_records(view, version)
    client = origin == Origin.CLIENT
    _check_header(view, header, config, client, log)
    codec = header.attributes & batch.CODEC_MASK
    target = codec if config.compression_type == "producer" else _target_codec(config, codec, header.attributes)
    by_append_time = config.message_timestamp_type == "LogAppendTime"
    if (
        target != codec
        or (not by_append_time and header.max_timestamp > now_ms + config.message_timestamp_after_max_ms)
        or config.message_timestamp_before_max_ms != INT64_MAX
        or (client and "compact" in config.cleanup_policy)  # coordinators write no record without a key
        or config.pylogd_record_validation == "full"
    ):
        return _validate_records(view, header, config, now_ms, target, log)
    return _with_timestamp(view, header, now_ms, by_append_time)


def _check_header(view: memoryview, header: BatchHeader, config: LogConfig, client: bool, log: str) -> None:
    """What is wrong with a whole batch whatever its records are; in Kafka's order, because the first fault is told."""
    size = len(view)
    if client and header.base_offset != 0:
        raise _invalid_record(
            f"The baseOffset of the record batch in the append to {log} should be 0, but it is {header.base_offset}"
        )
    if size > config.max_message_bytes:
        raise _too_large(size, config, log)
    if not batch.check_crc(view):
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt (stored crc = {header.crc}) in topic partition {log}."
        )
    attributes = header.attributes
    codec = attributes & batch.CODEC_MASK
    if codec > codecs.ZSTD:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Unknown compression type id: {codec}")
    if client:
        count = header.record_count
        if count != header.last_offset_delta + 1 or count <= 0 or attributes & batch.CONTROL_FLAG:
            raise _bad_client_batch(header, log)
        if header.producer_id > -1 and header.base_sequence < 0:
            raise _invalid_record(
                f"Invalid sequence number {header.base_sequence} in record batch with producerId {header.producer_id} "
                f"in topic partition {log}"
            )


def _with_timestamp(view: memoryview, header: BatchHeader, now_ms: int, by_append_time: bool) -> Validated:
    """A batch of which nothing changes but the type of its timestamps."""
    flagged = header.attributes & batch.TIMESTAMP_TYPE_FLAG
    if by_append_time:
        if flagged:
            raise _refused([_append_time_by_producer(0)], ErrorCode.INVALID_TIMESTAMP)
        batch.set_max_timestamp(view, batch.LOG_APPEND_TIME, now_ms)
        return Validated(view, batch.parse_header(view), now_ms, now_ms)
    max_timestamp = header.max_timestamp
    if flagged:
        # Kafka takes the records' timestamps from the header, and the flag away.
        if max_timestamp == batch.NO_TIMESTAMP:
            raise _refused([_append_time_by_producer(0)], ErrorCode.INVALID_TIMESTAMP)
        batch.set_max_timestamp(view, batch.CREATE_TIME, max_timestamp)
        header = batch.parse_header(view)
    return Validated(view, header, max_timestamp, -1)


def validate_given(
    view: memoryview, *, leader_epoch: int, origin: Origin, config: LogConfig | None = None, log: str = ""
) -> list[tuple[int, BatchHeader]]:
    """Check batches that already have their offsets: (position, header) of those to append, from a leader or for the
    quorum's log.

    A follower drops everything from the first batch whose leader epoch is above the one it fetches for: that leader
    lost its place while the response was under way. `config` bounds batch sizes; a follower takes any size its leader
    took."""
    found: list[tuple[int, BatchHeader]] = []
    last_offset = -1
    pos, end = 0, len(view)
    while pos < end:
        batch_end = batch.batch_end(view, pos)
        if batch_end is None:
            break
        header = batch.parse_header(view, pos)
        if origin == Origin.RAFT_LEADER and header.partition_leader_epoch != leader_epoch:
            raise _invalid_record(
                f"Append from Raft leader did not set the batch epoch correctly, expected {leader_epoch} "
                f"but the batch has {header.partition_leader_epoch}"
            )
        if origin == Origin.REPLICATION and header.partition_leader_epoch > leader_epoch:
            break
        if config is not None and header.length > config.max_message_bytes:
            raise _too_large(header.length, config, log)
        if not batch.check_crc(view, pos, batch_end):
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt (stored crc = {header.crc}) in topic partition {log}."
            )
        if header.last_offset <= last_offset:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"Out of order offsets found in append to {log}")
        last_offset = header.last_offset
        found.append((pos, header))
        pos = batch_end
    return found


def _bad_client_batch(header: BatchHeader, log: str) -> KafkaError:
    if header.last_offset_delta + 1 <= 0:
        return _invalid_record(
            f"Batch has an invalid offset range: [{header.base_offset}, {header.last_offset}] in topic partition {log}"
        )
    if header.record_count <= 0:
        return _invalid_record(
            f"Invalid reported count for record batch: {header.record_count} in topic partition {log}"
        )
    if header.record_count != header.last_offset_delta + 1:
        return _invalid_record(
            f"Inconsistent batch offset range [{header.base_offset}, {header.last_offset}] and count of records "
            f"{header.record_count} in topic partition {log}"
        )
    return _invalid_record(f"Clients are not allowed to write control records in topic partition {log}")


def _target_codec(config: LogConfig, source: int, attributes: int) -> int:
    if source == codecs.NONE and attributes & batch.CONTROL_FLAG:
        return source  # control records are not compressed unless they came compressed
    return codecs.codec_id(config.compression_type)


def _level(config: LogConfig, codec: int) -> int | None:
    if codec == codecs.GZIP:
        return config.compression_gzip_level
    if codec == codecs.LZ4:
        return config.compression_lz4_level
    if codec == codecs.ZSTD:
        return config.compression_zstd_level
    return None


def _validate_records(
    view: memoryview, header: BatchHeader, config: LogConfig, now_ms: int, target: int, log: str
) -> Validated:
    by_append_time = config.log_append_time
    needs_key = config.compact
    before_max_ms = config.message_timestamp_before_max_ms
    after_max_ms = config.message_timestamp_after_max_ms
    flagged = header.timestamp_type == batch.LOG_APPEND_TIME
    try:
        payload = batch.payload(view, header)
    except codecs.CompressionError as error:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Failed to decompress record stream: {error}") from None
    raws: list[RawRecord] = []
    errors: list[RecordError] = []
    bad_timestamp = False
    in_order = True
    max_timestamp = batch.NO_TIMESTAMP
    for index, raw in enumerate(walk(payload, header.record_count)):
        raws.append(raw)
        timestamp = header.max_timestamp if flagged else header.base_timestamp + raw.timestamp_delta
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        if raw.offset_delta != index:
            in_order = False
        refused = None
        if needs_key and raw.key_size < 0:
            refused = RecordError(index, f"Compacted topic cannot accept message without key in topic partition {log}")
        elif not by_append_time and timestamp != batch.NO_TIMESTAMP:
            ahead_ms = timestamp - now_ms
            if ahead_ms > after_max_ms or -ahead_ms > before_max_ms:
                bad_timestamp = True
                refused = RecordError(
                    index,
                    f"Timestamp {timestamp} of message with offset {raw.offset_delta} is out of range. The timestamp "
                    f"should be within [{now_ms - before_max_ms}, {now_ms + after_max_ms}]",
                )
        elif flagged:
            bad_timestamp = True
            refused = _append_time_by_producer(index)
        if refused is not None and len(errors) < _RECORD_ERRORS_MAX:
            errors.append(refused)
    if errors:
        raise _refused(errors, ErrorCode.INVALID_TIMESTAMP if bad_timestamp else ErrorCode.INVALID_RECORD)

    codec = header.compression
    if target != codec or (codec != codecs.NONE and not in_order):
        view = _rebuild(payload, raws, header, config, now_ms, target)
        if len(view) > config.max_message_bytes:
            raise _too_large(len(view), config, log)
        header = batch.parse_header(view)
    elif by_append_time:
        batch.set_max_timestamp(view, batch.LOG_APPEND_TIME, now_ms)
        header = batch.parse_header(view)
    else:
        batch.set_max_timestamp(view, batch.CREATE_TIME, max_timestamp)
        header = batch.parse_header(view)
    return Validated(view, header, header.max_timestamp, now_ms if by_append_time else -1)


def _rebuild(
    payload: bytes, raws: list[RawRecord], header: BatchHeader, config: LogConfig, now_ms: int, target: int
) -> memoryview:
    """The same records, numbered 0, 1, 2, ..., in a new batch compressed as the topic wants."""
    flagged = header.timestamp_type == batch.LOG_APPEND_TIME
    timestamps = [header.max_timestamp if flagged else header.base_timestamp + raw.timestamp_delta for raw in raws]
    base_timestamp = timestamps[0] if timestamps else batch.NO_TIMESTAMP
    body = bytearray()
    for index, (raw, timestamp) in enumerate(zip(raws, timestamps)):
        if raw.offset_delta == index:
            append_moved(body, payload, raw, timestamp - base_timestamp)
            continue
        rest = raw.tail + varint_size(raw.offset_delta)
        delta = timestamp - base_timestamp
        append_varint(body, 1 + varint_size(delta) + varint_size(index) + raw.end - rest)
        body.append(0)
        append_varint(body, delta)
        append_varint(body, index)
        body += payload[rest : raw.end]
    attributes = header.attributes & (batch.TRANSACTIONAL_FLAG | batch.CONTROL_FLAG) | target
    if config.log_append_time:
        attributes |= batch.TIMESTAMP_TYPE_FLAG
    return memoryview(
        batch.assemble(
            codecs.compress(target, body, _level(config, target)),
            base_offset=0,
            leader_epoch=header.partition_leader_epoch,
            attributes=attributes,
            last_offset_delta=len(raws) - 1,
            base_timestamp=base_timestamp,
            max_timestamp=now_ms if config.log_append_time else max(timestamps, default=batch.NO_TIMESTAMP),
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            record_count=len(raws),
        )
    )


def _append_time_by_producer(index: int) -> RecordError:
    return RecordError(
        index, "Invalid timestamp type in message. Producer should not set timestamp type to LogAppendTime."
    )


def _refused(errors: list[RecordError], code: ErrorCode) -> InvalidRecords:
    if code == ErrorCode.INVALID_TIMESTAMP:
        return InvalidRecords(code, "One or more records have been rejected due to invalid timestamp", errors)
    shown = [f"{error.batch_index}: {error.message}" for error in errors[:3]]
    return InvalidRecords(
        code,
        f"One or more records have been rejected due to {len(errors)} record errors in total, "
        f"and only showing the first three errors at most: {shown}",
        errors,
    )


def _invalid_record(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)


def _too_large(size: int, config: LogConfig, log: str) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"The record batch size in the append to {log} is {size} bytes which exceeds the maximum configured value "
        f"of {config.max_message_bytes}.",
    )
