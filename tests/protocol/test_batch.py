"""Record batches beside kafka-python's builder and reader, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record import MemoryRecords, MemoryRecordsBuilder
from pylogd.protocol import batch, control, records
from pylogd.protocol.batch import Record
from pylogd.protocol.errors import ErrorCode, KafkaError

CODECS = range(5)

maybe_bytes = st.none() | st.binary(max_size=80)
headers = st.lists(st.tuples(st.text(max_size=10), maybe_bytes), max_size=3)
timestamps = st.integers(0, 1 << 42)


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    rows = draw(st.lists(st.tuples(timestamps, maybe_bytes, maybe_bytes, headers), min_size=1, max_size=12))
    base = draw(st.integers(0, 1 << 50))
    return [Record(base + n, *row) for n, row in enumerate(rows)]


def facts(record: Record) -> tuple[object, ...]:
    return record.offset, record.timestamp, record.key, record.value, [tuple(header) for header in record.headers]


@pytest.mark.parametrize("codec", CODECS)
@given(records=record_lists())
@settings(max_examples=40, deadline=None)
def test_kafka_python_reads_what_we_build(codec: int, records: list[Record]) -> None:
    built = batch.build_batch(
        records,
        base_offset=records[0].offset,
        compression=codec,
        producer_id=77,
        producer_epoch=3,
        base_sequence=11,
        transactional=True,
        leader_epoch=5,
    )
    (theirs,) = list(MemoryRecords(bytes(built)))
    assert theirs.validate_crc()
    assert (theirs.base_offset, theirs.compression_type, theirs.leader_epoch) == (records[0].offset, codec, 5)
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (77, 3, 11)
    assert theirs.max_timestamp == max(record.timestamp for record in records)
    assert [facts(record) for record in theirs] == [facts(record) for record in records]
    assert list(batch.iter_records(built)) == records


@pytest.mark.parametrize("codec", CODECS)
@given(records=record_lists())
@settings(max_examples=40, deadline=None)
def test_we_read_what_kafka_python_builds(codec: int, records: list[Record]) -> None:
    builder = MemoryRecordsBuilder(2, codec, 1 << 20)
    for record in records:
        builder.append(record.timestamp, record.key, record.value, list(record.headers))
    builder.close()
    data = builder.buffer()
    assert batch.check_crc(data)
    header = batch.parse_header(data)
    assert (header.length, header.record_count) == (len(data), len(records))
    assert header.compression in (codec, 0)  # it leaves out a codec that gains nothing
    ours = list(batch.iter_records(data))
    assert [facts(record)[1:] for record in ours] == [facts(record)[1:] for record in records]
    assert [record.offset for record in ours] == list(range(len(records)))


def test_header_fields_and_derived_values() -> None:
    view = batch.build_batch(
        [Record(0, 1000, b"k", b"v"), Record(0, 900, None, None)],
        base_offset=40,
        compression=2,
        producer_id=9,
        producer_epoch=1,
        base_sequence=batch.SEQUENCE_MAX,
        transactional=True,
        leader_epoch=7,
        delete_horizon=5000,
    )
    header = batch.parse_header(view)
    assert (header.base_offset, header.last_offset, header.next_offset) == (40, 41, 42)
    assert (header.length, header.magic, header.record_count) == (len(view), 2, 2)
    assert (header.compression, header.timestamp_type, header.is_control) == (2, batch.CREATE_TIME, False)
    assert header.is_transactional
    assert header.has_delete_horizon
    assert (header.delete_horizon_ms, header.max_timestamp, header.partition_leader_epoch) == (5000, 1000, 7)
    assert header.last_sequence == 0  # wrapped
    assert [record.timestamp for record in batch.iter_records(view)] == [1000, 900]


def test_stamping_leaves_the_checksum_alone() -> None:
    view = memoryview(batch.build_batch([Record(0, 1, b"k", b"v")]))
    batch.stamp(view, 1 << 40, 12)
    header = batch.parse_header(view)
    assert (header.base_offset, header.partition_leader_epoch) == (1 << 40, 12)
    assert batch.check_crc(view)


def test_log_append_time_rewrites_and_reseals() -> None:
    view = memoryview(batch.build_batch([Record(0, 1, b"k", b"v"), Record(0, 2, b"k", b"v")]))
    before = bytes(view)
    batch.set_max_timestamp(view, batch.CREATE_TIME, 2)
    assert bytes(view) == before
    batch.set_max_timestamp(view, batch.LOG_APPEND_TIME, 777)
    assert batch.check_crc(view)
    assert batch.parse_header(view).timestamp_type == batch.LOG_APPEND_TIME
    assert [record.timestamp for record in batch.iter_records(view)] == [777, 777]


def test_batches_in_a_row_and_a_torn_one_at_the_end() -> None:
    parts = [batch.build_batch([Record(0, n, None, b"v%d" % n)], base_offset=n) for n in range(3)]
    data = b"".join(parts)
    assert [header.base_offset for _, header in batch.iter_headers(data)] == [0, 1, 2]
    assert [record.offset for record in batch.iter_records(data[:-1])] == [0, 1]
    assert batch.batch_end(data) == len(parts[0])
    assert batch.batch_end(data[: len(parts[0]) - 1]) is None
    assert batch.check_crc(data, len(parts[0]), len(parts[0]) + len(parts[1]))


def test_an_empty_batch_keeps_its_header() -> None:
    view = batch.build_batch([], base_offset=3, compression=4, producer_id=1, producer_epoch=0, base_sequence=5)
    header = batch.parse_header(view)
    assert (len(view), header.record_count, header.compression) == (batch.HEADER_SIZE, 0, 0)
    assert list(batch.iter_records(view)) == []


def test_gaps_in_offsets_survive() -> None:
    records = [Record(10, 5, b"a", b""), Record(17, 6, b"b", None)]
    view = batch.build_batch(records, base_offset=10, keep_offsets=True)
    assert batch.parse_header(view).last_offset == 17
    assert list(batch.iter_records(view)) == records


def test_header_keys_that_are_not_utf8_survive() -> None:
    record = Record(0, 0, None, None, [(b"\xff\xfe".decode("utf-8", "surrogateescape"), b"v")])
    view = batch.build_batch([record])
    assert b"\xff\xfe" in view
    assert list(batch.iter_records(view)) == [record]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda b: b[:60], ErrorCode.CORRUPT_MESSAGE),
        (lambda b: b[:16] + b"\x03" + b[17:], ErrorCode.CORRUPT_MESSAGE),
        (lambda b: b[:16] + b"\x01" + b[17:], ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (lambda b: b[:16] + b"\x00" + b[17:30], ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (lambda b: b[:8] + b"\x00\x00\x00\x30" + b[12:], ErrorCode.CORRUPT_MESSAGE),
        (lambda b: b[:8] + b"\xff\xff\xff\xff" + b[12:], ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_what_cannot_be_a_header(change, code: ErrorCode) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(KafkaError) as caught:
        batch.parse_header(change(bytes(batch.build_batch([Record(0, 0, None, b"v")]))))
    assert caught.value.code == code


@given(records=record_lists(), position=st.integers(0, 10_000), value=st.integers(0, 255))
@settings(max_examples=150, deadline=None)
def test_mangled_records_never_raise_anything_else(records: list[Record], position: int, value: int) -> None:
    view = batch.build_batch(records)
    view[batch.HEADER_SIZE + position % (len(view) - batch.HEADER_SIZE)] = value
    codes = set()
    try:
        list(batch.iter_records(view))
    except KafkaError as error:
        codes.add(error.code)
    assert codes <= {ErrorCode.INVALID_RECORD}


@given(data=st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_random_bytes_as_a_payload(data: bytes) -> None:
    view = batch.assemble(
        data,
        base_offset=0,
        leader_epoch=0,
        attributes=0,
        last_offset_delta=0,
        base_timestamp=0,
        max_timestamp=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=3,
    )
    with pytest.raises(KafkaError):
        list(batch.iter_records(view))


@pytest.mark.parametrize("count", [1, 3, -1])
def test_a_wrong_record_count_is_noticed(count: int) -> None:
    view = batch.build_batch([Record(0, 0, b"a", b""), Record(0, 0, b"b", b"")])
    view[57:61] = count.to_bytes(4, "big", signed=True)
    with pytest.raises(KafkaError) as caught:
        list(batch.iter_records(view))
    assert caught.value.code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("commit", [True, False])
def test_end_transaction_markers(commit: bool) -> None:
    view = control.end_txn_batch(
        commit=commit, coordinator_epoch=4, producer_id=8, producer_epoch=2, timestamp_ms=99, base_offset=6
    )
    (theirs,) = list(MemoryRecords(bytes(view)))
    assert theirs.is_control_batch
    assert theirs.is_transactional
    (record,) = list(theirs)
    assert (record.commit, record.abort) == (commit, not commit)
    (ours,) = list(batch.iter_records(view))
    assert control.control_type(ours.key) == (control.ControlType.COMMIT if commit else control.ControlType.ABORT)
    assert control.marker_coordinator_epoch(ours.value) == 4
    header = batch.parse_header(view)
    assert (header.base_sequence, header.producer_id, header.producer_epoch) == (-1, 8, 2)


def test_quorum_control_records() -> None:
    view = control.control_batch(
        [(control.ControlType.KRAFT_VERSION, b"one"), (control.ControlType.KRAFT_VOTERS, b"two")],
        timestamp_ms=1,
        base_offset=10,
        leader_epoch=3,
    )
    records = list(batch.iter_records(view))
    assert [(control.control_type(r.key), r.value) for r in records] == [(5, b"one"), (6, b"two")]
    assert batch.parse_header(view).is_control
    assert not batch.parse_header(view).is_transactional
    assert control.control_type(b"\x00\x00\x00\x63") == control.ControlType.UNKNOWN
    for key in (None, b"\x00\x00", b"\xff\xff\x00\x00"):
        with pytest.raises(KafkaError):
            control.control_type(key)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 127, 128, 255, 256, 8191, 8192, 100_000])
@pytest.mark.parametrize("value", [True, False])
def test_plain_records_are_records(size: int, value: bool) -> None:
    plain, wanted = bytearray(), bytearray()
    data = b"x" * size if value else None
    records.append_plain_record(plain, size, b"k" * size, data)
    records.append_record(wanted, size, 0, b"k" * size, data)
    assert plain == wanted
    assert records.plain_record_size(size, b"k" * size, data) == len(plain) <= 2 * size + records.PLAIN_OVERHEAD_MAX
