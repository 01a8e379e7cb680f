"""What retention, compaction, DeleteRecords and changed configs do to a log, as clients see it."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import KafkaError, KafkaException
from support.admin import Admin
from support.clients import Client, Confluent, Message
from support.daemon import Daemon
from support.wait import eventually

confluent = Confluent()


def test_delete_records(client: Client, broker: Daemon, admin: Admin, topic_name: str) -> None:
    admin.create(topic_name)
    client.produce(broker.bootstrap, topic_name, [Message(str(n).encode()) for n in range(100)])
    assert admin.delete_records(topic_name, 40) == 40
    assert client.watermarks(broker.bootstrap, topic_name) == (40, 100)
    found = client.consume(broker.bootstrap, topic_name, 60, offset=40)
    assert [m.offset for m in found] == list(range(40, 100))
    # -1 is the high watermark: everything goes, offsets go on.
    assert admin.delete_records(topic_name, -1) == 100
    assert client.watermarks(broker.bootstrap, topic_name) == (100, 100)
    assert client.produce(broker.bootstrap, topic_name, [Message(b"next")]) == [(0, 100)]


def test_fetch_below_the_log_start_is_out_of_range(broker: Daemon, admin: Admin, topic_name: str) -> None:
    admin.create(topic_name)
    confluent.produce(broker.bootstrap, topic_name, [Message(b"x") for _ in range(10)])
    admin.delete_records(topic_name, 5)
    with pytest.raises(Exception, match=r"(?i)out of range|no offset|reset"):
        confluent.consume(broker.bootstrap, topic_name, 1, offset=2)
    with pytest.raises(Exception, match=r"(?i)out of range|no offset|reset"):
        confluent.consume(broker.bootstrap, topic_name, 1, offset=11)


def test_retention_by_size(broker: Daemon, admin: Admin, topic_name: str) -> None:
    admin.create(topic_name, segment_bytes=1_048_576, retention_bytes=1_048_576)
    for _ in range(6):
        confluent.produce(broker.bootstrap, topic_name, [Message(b"x" * 10_000) for _ in range(60)])
    start = eventually(lambda: confluent.watermarks(broker.bootstrap, topic_name)[0])
    assert confluent.watermarks(broker.bootstrap, topic_name)[1] == 360
    assert confluent.consume(broker.bootstrap, topic_name, 1, offset=start)[0].offset == start


def test_retention_by_time_follows_the_records_timestamps(broker: Daemon, admin: Admin, topic_name: str) -> None:
    admin.create(topic_name, segment_bytes=1_048_576, retention_ms=3_600_000)
    old = int(time.time() * 1000) - 7_200_000
    fresh = int(time.time() * 1000)
    confluent.produce(broker.bootstrap, topic_name, [Message(b"x" * 10_000, timestamp=old) for _ in range(110)])
    confluent.produce(broker.bootstrap, topic_name, [Message(b"x" * 10_000, timestamp=fresh) for _ in range(110)])
    start = eventually(lambda: confluent.watermarks(broker.bootstrap, topic_name)[0])
    # A whole segment of old records is gone, no fresh one is.
    assert 0 < start <= 110
    found = confluent.consume(broker.bootstrap, topic_name, 220 - start, offset=start)
    assert sum(m.timestamp == fresh for m in found) == 110


def test_compaction_keeps_the_last_value_of_each_key(broker: Daemon, admin: Admin, topic_name: str) -> None:
    admin.create(
        topic_name,
        cleanup_policy="compact",
        segment_ms=100,
        min_cleanable_dirty_ratio=0.01,
        delete_retention_ms=600_000,
    )
    for round_ in range(5):
        batch = [Message(f"{key}-{round_}".encode(), key=f"k{key}".encode()) for key in range(10)]
        confluent.produce(broker.bootstrap, topic_name, batch, codec="lz4")
        time.sleep(0.12)
    confluent.produce(broker.bootstrap, topic_name, [Message(None, key=b"k3")])
    time.sleep(0.12)

    def latest() -> list[Message] | None:
        # A record after the segment's age closes it; the active segment is never cleaned.
        confluent.produce(broker.bootstrap, topic_name, [Message(b"roll", key=b"roll")])
        end = confluent.watermarks(broker.bootstrap, topic_name)[1]
        records: list[Message] = []
        while not records or records[-1].offset < end - 1:
            position = records[-1].offset + 1 if records else 0
            records += confluent.consume(broker.bootstrap, topic_name, 1, offset=position)
        keyed = [m for m in records if m.key != b"roll"]
        return keyed if len(keyed) == 10 else None

    kept = eventually(latest, timeout_s=60, pause_s=0.3)
    values = {m.key: m.value for m in kept}
    assert values == {f"k{key}".encode(): f"{key}-4".encode() if key != 3 else None for key in range(10)}
    # Offsets never change: the last round wrote offsets 40 to 49, the tombstone 50.
    assert [m.offset for m in kept] == [40, 41, 42, 44, 45, 46, 47, 48, 49, 50]


def test_compacted_topic_requires_keys(client: Client, broker: Daemon, admin: Admin, topic_name: str) -> None:
    admin.create(topic_name, cleanup_policy="compact")
    # The exact error is INVALID_RECORD; libraries word it differently, and aiokafka does not know it.
    with pytest.raises(Exception, match=r"(?i)invalid|corrupt|validat|record|UnknownError"):
        client.produce(broker.bootstrap, topic_name, [Message(b"no key")])
    assert client.watermarks(broker.bootstrap, topic_name) == (0, 0)


@pytest.mark.parametrize("codec", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_topic_decides_the_codec(broker: Daemon, admin: Admin, topic_name: str, codec: str) -> None:
    """The broker recompresses what producers send otherwise; records and offsets stay."""
    admin.create(topic_name, compression_type=codec)
    messages = [Message(f"{n}".encode() * 50, key=b"k", headers=(("h", b"v"),)) for n in range(200)]
    for sent_as in ("none", "zstd", "gzip"):
        confluent.produce(broker.bootstrap, topic_name, messages, codec=sent_as)
    found = confluent.consume(broker.bootstrap, topic_name, 600)
    assert [m.content for m in found] == [m.content for m in messages] * 3
    assert [m.offset for m in found] == list(range(600))


def test_config_changes_apply_while_running(broker: Daemon, admin: Admin, topic_name: str) -> None:
    admin.create(topic_name, retention_ms=-1)
    confluent.produce(broker.bootstrap, topic_name, [Message(b"x" * 5000)])
    admin.alter(topic_name, max_message_bytes=1000)
    assert admin.config(topic_name)["max.message.bytes"] == "1000"

    def accepted() -> bool:
        try:
            confluent.produce(broker.bootstrap, topic_name, [Message(b"x" * 5000)])
        except KafkaException as error:
            if error.args[0].code() != KafkaError.MSG_SIZE_TOO_LARGE:
                raise
            return False
        return True

    assert eventually(lambda: not accepted())
    admin.alter(topic_name, max_message_bytes=None)
    assert eventually(accepted)
    admin.alter(topic_name, message_timestamp_type="LogAppendTime")

    def appended_now() -> bool:
        [(_, offset)] = confluent.produce(broker.bootstrap, topic_name, [Message(b"x", timestamp=1000)])
        return confluent.consume(broker.bootstrap, topic_name, 1, offset=offset)[0].timestamp != 1000

    assert eventually(appended_now)


def test_deleted_topic_returns_empty(client: Client, broker: Daemon, admin: Admin, topic_name: str) -> None:
    admin.create(topic_name)
    client.produce(broker.bootstrap, topic_name, [Message(b"old") for _ in range(5)])
    admin.delete(topic_name)
    assert eventually(lambda: topic_name not in admin.topics())
    admin.create(topic_name)
    assert client.watermarks(broker.bootstrap, topic_name) == (0, 0)
    client.produce(broker.bootstrap, topic_name, [Message(b"new")])
    assert [m.value for m in client.consume(broker.bootstrap, topic_name, 1)] == [b"new"]
