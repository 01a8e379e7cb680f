"""What a log accepts from clients, with Kafka's error codes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pylogd.protocol import batch, compression, control
from pylogd.protocol.batch import Record
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.storage.log_config import LogConfig
from pylogd.storage.validation import (
    InvalidRecords,
    Origin,
    Validated,
    validate_append,
    validate_given,
    validate_produce_records,
)

NOW = 1_700_000_000_000
PLAIN = LogConfig()
COMPACT = LogConfig(cleanup_policy=("compact",))
APPEND_TIME = LogConfig(message_timestamp_type="LogAppendTime")
FULL = LogConfig(pylogd_record_validation="full")


def build(*records: Record, **fields: object) -> bytearray:
    return batch.build_batch(records or (Record(0, NOW, b"k", b"v"),), **fields)  # type: ignore[arg-type]


def sealed(data: bytearray, position: int, value: bytes) -> bytearray:
    """With other bytes under a checksum that holds."""
    data[position : position + len(value)] = value
    data[batch.CRC_POS : batch.CRC_POS + 4] = batch.compute_crc(data).to_bytes(4, "big")
    return data


def accept(data: bytes | bytearray, config: LogConfig = PLAIN, **options: object) -> Validated:
    return validate_append(memoryview(bytearray(data)), config, NOW, **options)  # type: ignore[arg-type]


def refuse(code: ErrorCode, data: bytes | bytearray, config: LogConfig = PLAIN, **options: object) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        accept(data, config, **options)
    assert caught.value.code == code
    return caught.value


def test_a_plain_batch_is_taken_as_it_is() -> None:
    data = build(Record(0, NOW, b"k", b"v"), Record(0, NOW + 5, None, None), compression=2)
    view = memoryview(bytearray(data))
    taken = validate_append(view, PLAIN, NOW)
    assert taken.view is view
    assert bytes(view) == data
    assert (taken.max_timestamp, taken.log_append_time_ms, taken.header.record_count) == (NOW + 5, -1, 2)


@pytest.mark.parametrize(
    "data", [b"", build()[:-1], build()[:20], b"\x00" * 12, build() + build(), build()[:16] + b"\x01" + build()[17:]]
)
def test_a_produce_request_carries_exactly_one_whole_batch_of_magic_2(data: bytes) -> None:
    refuse(ErrorCode.CORRUPT_MESSAGE if data == b"\x00" * 12 else ErrorCode.INVALID_RECORD, data)


def test_torn_bytes_behind_the_batch_are_dropped() -> None:
    data = build()
    assert len(accept(data + build()[:40]).view) == len(data)
    assert len(validate_produce_records(memoryview(data + b"\x00" * 11))) == len(data)


@pytest.mark.parametrize(("position", "value"), [(16, b"\x03"), (8, b"\x00\x00\x00\x0d"), (8, b"\xff\xff\xff\xff")])
def test_bytes_that_are_no_batch(position: int, value: bytes) -> None:
    data = build()
    data[position : position + len(value)] = value
    refuse(ErrorCode.CORRUPT_MESSAGE, data)


def test_null_records() -> None:
    with pytest.raises(KafkaError) as caught:
        validate_produce_records(None)
    assert caught.value.code == ErrorCode.INVALID_RECORD


def test_zstd_needs_produce_version_7() -> None:
    data = build(compression=compression.ZSTD)
    refuse(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, data, version=6)
    accept(data, version=7)
    accept(build(compression=compression.LZ4), version=3)


def test_the_base_offset_is_zero() -> None:
    refuse(ErrorCode.INVALID_RECORD, build(base_offset=1))
    accept(build(base_offset=1), origin=Origin.COORDINATOR)


def test_size_and_checksum() -> None:
    data = build(Record(0, NOW, b"k", bytes(500)))
    refuse(ErrorCode.MESSAGE_TOO_LARGE, data, replace(PLAIN, max_message_bytes=len(data) - 1))
    accept(data, replace(PLAIN, max_message_bytes=len(data)))
    data[-1] ^= 1
    refuse(ErrorCode.CORRUPT_MESSAGE, data)


@pytest.mark.parametrize(
    ("position", "value"),
    [
        (23, b"\xff\xff\xff\xff"),  # last offset delta -1
        (23, b"\x00\x00\x00\x05"),  # other than the count
        (57, b"\x00\x00\x00\x00"),
        (57, b"\xff\xff\xff\xff"),
        (57, b"\x00\x00\x00\x09"),
    ],
)
def test_counts_must_agree(position: int, value: bytes) -> None:
    refuse(ErrorCode.INVALID_RECORD, sealed(build(), position, value))


def test_clients_write_no_control_records() -> None:
    data = control.end_txn_batch(commit=True, coordinator_epoch=0, producer_id=1, producer_epoch=0, timestamp_ms=NOW)
    refuse(ErrorCode.INVALID_RECORD, data)
    accept(data, origin=Origin.COORDINATOR)
    # Nor are they compressed because the topic is.
    gzip = replace(PLAIN, compression_type="gzip")
    assert bytes(accept(data, gzip, origin=Origin.COORDINATOR).view) == data


def test_a_producer_id_needs_a_sequence() -> None:
    refuse(ErrorCode.INVALID_RECORD, build(producer_id=5, producer_epoch=0, base_sequence=-1))
    accept(build(producer_id=5, producer_epoch=0, base_sequence=0))


def test_an_unknown_codec() -> None:
    refuse(ErrorCode.UNKNOWN_SERVER_ERROR, sealed(build(), 21, b"\x00\x07"))


@pytest.mark.parametrize("codec", [0, 3])
def test_timestamps_too_far_ahead_name_their_records(codec: int) -> None:
    limit = replace(PLAIN, message_timestamp_after_max_ms=1000)
    rows = [Record(0, NOW + 1000, b"k", b""), Record(0, NOW + 1001, b"k", b""), Record(0, NOW - 10**9, b"k", b"")]
    error = refuse(ErrorCode.INVALID_TIMESTAMP, build(*rows, compression=codec), limit)
    assert isinstance(error, InvalidRecords)
    assert [e.batch_index for e in error.record_errors] == [1]
    accept(build(rows[0], rows[2], compression=codec), limit)


def test_timestamps_too_old() -> None:
    limit = replace(PLAIN, message_timestamp_before_max_ms=1000)
    error = refuse(ErrorCode.INVALID_TIMESTAMP, build(Record(0, NOW, b"", b""), Record(0, NOW - 1001, b"", b"")), limit)
    assert isinstance(error, InvalidRecords)
    assert [e.batch_index for e in error.record_errors] == [1]
    accept(build(Record(0, NOW, b"", b""), Record(0, NOW - 1000, b"", b"")), limit)
    accept(build(Record(0, -1, b"", b"")), limit)  # no timestamp at all


@pytest.mark.parametrize("codec", range(5))
def test_log_append_time_overwrites(codec: int) -> None:
    data = build(Record(0, 5, b"k", b"1"), Record(0, 6, b"k", b"2"), compression=codec)
    taken = accept(data, APPEND_TIME)
    assert (taken.max_timestamp, taken.log_append_time_ms) == (NOW, NOW)
    assert batch.check_crc(taken.view)
    assert [record.timestamp for record in batch.iter_records(taken.view)] == [NOW, NOW]
    assert taken.header.timestamp_type == batch.LOG_APPEND_TIME


def test_producers_do_not_set_log_append_time() -> None:
    data = build(timestamp_type=batch.LOG_APPEND_TIME, log_append_time=NOW)
    for config in (APPEND_TIME, replace(APPEND_TIME, cleanup_policy=("compact",))):
        error = refuse(ErrorCode.INVALID_TIMESTAMP, data, config)
        assert isinstance(error, InvalidRecords)
        assert [e.batch_index for e in error.record_errors] == [0]
    taken = accept(data)  # on a CreateTime topic the flag goes
    assert taken.header.timestamp_type == batch.CREATE_TIME
    assert batch.check_crc(taken.view)


@pytest.mark.parametrize("codec", range(5))
def test_compacted_topics_need_keys(codec: int) -> None:
    rows = [Record(0, NOW, None, b"1"), Record(0, NOW, b"", b"2"), Record(0, NOW, None, b"3")]
    error = refuse(ErrorCode.INVALID_RECORD, build(*rows, compression=codec), COMPACT)
    assert isinstance(error, InvalidRecords)
    assert [e.batch_index for e in error.record_errors] == [0, 2]
    accept(build(rows[1], compression=codec), COMPACT)


@pytest.mark.parametrize("source", range(5))
@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("append_time", [False, True])
def test_recompression(source: int, target: str, append_time: bool) -> None:
    config = replace(APPEND_TIME if append_time else PLAIN, compression_type=target)
    rows = [Record(0, NOW - n, b"%d" % n, b"v" * 50, [("h", None)]) for n in range(9)]
    data = build(*rows, compression=source, producer_id=4, producer_epoch=1, base_sequence=8, transactional=True)
    taken = accept(data, config)
    header = taken.header
    assert header.compression == compression.codec_id(target)
    assert batch.check_crc(taken.view)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.is_transactional) == (4, 1, 8, True)
    got = list(batch.iter_records(taken.view))
    assert [(r.offset, r.key, r.value, list(r.headers)) for r in got] == [
        (n, r.key, r.value, list(r.headers)) for n, r in enumerate(rows)
    ]
    assert {r.timestamp for r in got} == ({NOW} if append_time else {r.timestamp for r in rows})
    if header.compression == source and not append_time:
        assert bytes(taken.view) == data


def test_recompression_may_make_a_batch_too_large() -> None:
    data = build(Record(0, NOW, b"k", bytes(5000)), compression=compression.GZIP)
    config = replace(PLAIN, compression_type="uncompressed", max_message_bytes=1000)
    refuse(ErrorCode.MESSAGE_TOO_LARGE, data, config)


def test_inner_offsets_out_of_order_are_renumbered() -> None:
    rows = [Record(3, NOW, b"a", b"1"), Record(700, NOW - 7, b"b", b"2")]
    data = batch.build_batch(rows, compression=compression.GZIP, keep_offsets=True)
    sealed(data, 23, (1).to_bytes(4, "big"))
    taken = accept(data, FULL)
    assert [(r.offset, r.timestamp, r.key) for r in batch.iter_records(taken.view)] == [
        (0, NOW, b"a"),
        (1, NOW - 7, b"b"),
    ]


def test_a_lying_header_passes_unless_full_validation_is_asked_for() -> None:
    data = sealed(build(Record(0, NOW, b"k", b"v")), 57, (2).to_bytes(4, "big"))
    sealed(data, 23, (1).to_bytes(4, "big"))
    accept(data)
    refuse(ErrorCode.INVALID_RECORD, data, FULL)
    wrong_time = sealed(build(Record(0, NOW - 50, b"k", b"v")), 35, NOW.to_bytes(8, "big"))
    assert accept(wrong_time, FULL).max_timestamp == NOW - 50


@pytest.mark.parametrize("codec", range(1, 5))
def test_records_that_do_not_unpack(codec: int) -> None:
    data = sealed(build(), 21, codec.to_bytes(2, "big"))
    refuse(ErrorCode.UNKNOWN_SERVER_ERROR, data, FULL)


@given(data=st.binary(max_size=120), config=st.sampled_from([PLAIN, COMPACT, FULL, APPEND_TIME]))
@settings(max_examples=200, deadline=None)
def test_random_bytes_are_refused_with_a_code(data: bytes, config: LogConfig) -> None:
    with pytest.raises(KafkaError):
        accept(data, config)


@given(position=st.integers(21, 140), value=st.integers(0, 255), codec=st.integers(0, 4))
@settings(max_examples=300, deadline=None)
def test_mangled_batches_are_refused_with_a_code_or_taken_whole(position: int, value: int, codec: int) -> None:
    data = build(Record(0, NOW, b"key", b"value" * 10), Record(0, NOW, b"other", None), compression=codec)
    sealed(data, position % len(data) if position % len(data) > 20 else 21, bytes([value]))
    try:
        taken = accept(data, FULL)
    except KafkaError:
        return
    assert len(list(batch.iter_records(taken.view))) == taken.header.record_count == 2


def test_batches_with_offsets_from_a_leader() -> None:
    parts = [build(base_offset=offset, leader_epoch=epoch) for offset, epoch in ((5, 1), (6, 1), (9, 2))]
    data = memoryview(b"".join(parts))
    found = validate_given(data, leader_epoch=2, origin=Origin.REPLICATION)
    assert [(pos, header.base_offset) for pos, header in found] == [(0, 5), (len(parts[0]), 6), (2 * len(parts[0]), 9)]
    assert len(validate_given(data, leader_epoch=1, origin=Origin.REPLICATION)) == 2
    assert len(validate_given(data[:-1], leader_epoch=2, origin=Origin.REPLICATION)) == 2
    for broken in (parts[1] + parts[0], parts[0] + parts[0], parts[0][:-1] + b"\x7f"):
        with pytest.raises(KafkaError) as caught:
            validate_given(memoryview(broken), leader_epoch=2, origin=Origin.REPLICATION)
        assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    with pytest.raises(KafkaError) as caught:
        validate_given(data, leader_epoch=1, origin=Origin.RAFT_LEADER)
    assert caught.value.code == ErrorCode.INVALID_RECORD
    small = replace(PLAIN, max_message_bytes=10)
    with pytest.raises(KafkaError) as caught:
        validate_given(data, leader_epoch=1, origin=Origin.RAFT_LEADER, config=small)
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE
