"""What goes in comes out: every codec, every acks, with and without idempotence, small, large and odd values."""

from __future__ import annotations

import hashlib
import random
import time

import pytest
from support.admin import Admin
from support.clients import CREATE_TIME, LOG_APPEND_TIME, Client, Message
from support.daemon import Daemon
from support.scale import scaled
from support.wait import eventually

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def some_messages(count: int, seed: int = 1) -> list[Message]:
    rng = random.Random(seed)
    return [
        Message(
            value=f"{n}:".encode() + rng.randbytes(rng.randrange(50)) + b"x" * rng.randrange(200),
            key=f"key {n % 7}".encode() if n % 3 else None,
            headers=(("n", str(n).encode()),) if n % 5 == 0 else (),
        )
        for n in range(count)
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec(client: Client, broker: Daemon, admin: Admin, topic_name: str, codec: str) -> None:
    admin.create(topic_name)
    messages = some_messages(scaled(test=300, soak=30_000))
    placed = client.produce(broker.bootstrap, topic_name, messages, codec=codec)
    assert placed == [(0, n) for n in range(len(messages))]
    found = client.consume(broker.bootstrap, topic_name, len(messages))
    assert [m.content for m in found] == [m.content for m in messages]
    assert [m.offset for m in found] == list(range(len(messages)))


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_every_acks(client: Client, broker: Daemon, admin: Admin, topic_name: str, acks: int) -> None:
    admin.create(topic_name)
    messages = some_messages(100)
    placed = client.produce(broker.bootstrap, topic_name, messages, acks=acks)
    if acks != 0:
        assert [offset for _, offset in placed] == list(range(100))
    found = client.consume(broker.bootstrap, topic_name, 100)
    assert [m.content for m in found] == [m.content for m in messages]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_idempotent_producer(client: Client, broker: Daemon, admin: Admin, topic_name: str, codec: str) -> None:
    admin.create(topic_name, partitions=3)
    messages = [Message(str(n).encode(), partition=n % 3) for n in range(scaled(test=600, soak=60_000))]
    client.produce(broker.bootstrap, topic_name, messages, idempotence=True, codec=codec)
    for partition in range(3):
        wanted = [m.value for m in messages if m.partition == partition]
        found = client.consume(broker.bootstrap, topic_name, len(wanted), partition=partition)
        assert [m.value for m in found] == wanted
        assert client.watermarks(broker.bootstrap, topic_name, partition) == (0, len(wanted))


@pytest.mark.parametrize("size", [1, 1_000, 100_000, 1_000_000, 10_000_000])
def test_record_sizes(client: Client, broker: Daemon, admin: Admin, topic_name: str, size: int) -> None:
    admin.create(topic_name, max_message_bytes=12_000_000)
    values = [random.Random(size + n).randbytes(size) for n in range(3)]
    client.produce(broker.bootstrap, topic_name, [Message(v) for v in values])
    found = client.consume(broker.bootstrap, topic_name, 3)
    assert [hashlib.sha256(m.value or b"").digest() for m in found] == [hashlib.sha256(v).digest() for v in values]


def test_fetch_returns_a_batch_larger_than_the_limit(
    client: Client, broker: Daemon, admin: Admin, topic_name: str
) -> None:
    """A consumer with small buffers must still get past a large record."""
    admin.create(topic_name)
    client.produce(broker.bootstrap, topic_name, [Message(b"x" * 500_000), Message(b"after")])
    small = (
        {"fetch_message_max_bytes": 1000} if client.name == "confluent-kafka" else {"max_partition_fetch_bytes": 1000}
    )
    found = client.consume(broker.bootstrap, topic_name, 2, **small)
    assert [len(m.value or b"") for m in found] == [500_000, 5]


NULLS_FOR_ALL = [
    Message(None, key=b"tombstone"),
    Message(b"no key", key=None),
    Message(b"", key=b""),
    Message(b"headers", key=b"k", headers=(("a", b"1"), ("a", b"2"), ("", b""), ("é", b"\x00\xff"))),
]
NULLS = [*NULLS_FOR_ALL, Message(None, key=None), Message(b"null header", headers=(("h", None),))]


@pytest.mark.parametrize("codec", CODECS)
def test_nulls_and_headers(client: Client, broker: Daemon, admin: Admin, topic_name: str, codec: str) -> None:
    admin.create(topic_name)
    # The two Python libraries refuse a record with neither key nor value, and a null header, before they send it.
    messages = NULLS if client.name == "confluent-kafka" else NULLS_FOR_ALL
    client.produce(broker.bootstrap, topic_name, messages, codec=codec)
    found = client.consume(broker.bootstrap, topic_name, len(messages))
    assert [m.content for m in found] == [m.content for m in messages]


def test_create_time(client: Client, broker: Daemon, admin: Admin, topic_name: str) -> None:
    admin.create(topic_name)
    base = int(time.time() * 1000) - 60_000
    stamps = [base, base + 5000, base + 2000, base + 5001]
    client.produce(broker.bootstrap, topic_name, [Message(b"x", timestamp=t) for t in stamps])
    found = client.consume(broker.bootstrap, topic_name, len(stamps))
    assert [(m.timestamp, m.timestamp_type) for m in found] == [(t, CREATE_TIME) for t in stamps]


def test_log_append_time(client: Client, broker: Daemon, admin: Admin, topic_name: str) -> None:
    admin.create(topic_name, message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    client.produce(broker.bootstrap, topic_name, [Message(b"x", timestamp=1000 + n) for n in range(10)], codec="gzip")
    after = int(time.time() * 1000)
    found = client.consume(broker.bootstrap, topic_name, 10)
    assert {m.timestamp_type for m in found} == {LOG_APPEND_TIME}
    assert all(before <= (m.timestamp or 0) <= after for m in found)


def test_timestamp_outside_its_bounds_is_refused(client: Client, broker: Daemon, admin: Admin, topic_name: str) -> None:
    admin.create(topic_name, message_timestamp_before_max_ms=60_000)
    now = int(time.time() * 1000)
    with pytest.raises(Exception, match=r"(?i)timestamp"):
        client.produce(broker.bootstrap, topic_name, [Message(b"old", timestamp=now - 3_600_000)])
    client.produce(broker.bootstrap, topic_name, [Message(b"new", timestamp=now - 1000)])
    assert client.watermarks(broker.bootstrap, topic_name) == (0, 1)


def test_offsets_by_timestamp(client: Client, broker: Daemon, admin: Admin, topic_name: str) -> None:
    # Small segments and a dense index, so that the look-up crosses files.
    admin.create(topic_name, segment_bytes=1_048_576, index_interval_bytes=1, segment_index_bytes=1200)
    base = int(time.time() * 1000) - 1_000_000
    for start in range(0, 300, 10):
        batch = [Message(b"x" * 100, timestamp=base + n * 10) for n in range(start, start + 10)]
        client.produce(broker.bootstrap, topic_name, batch)
    asked = [base - 5, base, base + 1, base + 1500, base + 1501, base + 2990, base + 2991]
    assert client.offsets_for_time(broker.bootstrap, topic_name, asked) == [0, 0, 1, 150, 151, 299, -1]


def test_read_from_the_middle_of_a_batch(client: Client, broker: Daemon, admin: Admin, topic_name: str) -> None:
    admin.create(topic_name)
    client.produce(broker.bootstrap, topic_name, some_messages(50), codec="lz4")
    found = client.consume(broker.bootstrap, topic_name, 13, offset=37)
    assert [m.offset for m in found] == list(range(37, 50))


def test_too_large_is_refused(client: Client, broker: Daemon, admin: Admin, topic_name: str) -> None:
    admin.create(topic_name, max_message_bytes=1000)
    with pytest.raises(Exception, match=r"(?i)large|size|exceed"):
        client.produce(broker.bootstrap, topic_name, [Message(b"x" * 5000)])
    client.produce(broker.bootstrap, topic_name, [Message(b"x" * 500)])
    assert client.watermarks(broker.bootstrap, topic_name) == (0, 1)


def test_auto_created_topic(client: Client, broker: Daemon, admin: Admin, topic_name: str) -> None:
    client.produce(broker.bootstrap, topic_name, [Message(b"first")])
    assert eventually(lambda: topic_name in admin.topics())
    assert [m.value for m in client.consume(broker.bootstrap, topic_name, 1)] == [b"first"]
