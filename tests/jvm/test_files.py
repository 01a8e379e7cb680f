"""Our files in Kafka's hands: DumpLogSegments reads them without a complaint, and a real Apache Kafka opens the whole
directory and serves the same records; and the other way round.

With PYLOGD_TEST_TARGET=kafka both sides are Kafka, which shows that the tests themselves hold.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import pytest
from support.admin import Admin
from support.clients import Confluent, Message
from support.daemon import Daemon
from support.jvm import ToolHost
from support.tools import Tools, assert_files_clean, dump, log_files
from support.wait import eventually

pytestmark = pytest.mark.jvm

confluent = Confluent()
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
SMALL = {
    "log.segment.bytes": "1048576",
    "log.index.interval.bytes": "512",
    "log.initial.task.delay.ms": "500",
    "log.flush.start.offset.checkpoint.interval.ms": "500",
}


def fill(broker: Daemon) -> dict[tuple[str, int], list[Message]]:
    """A bit of everything that ends up in a data directory; what each partition must hold from its log start on."""
    admin = Admin(broker.bootstrap)
    wanted: dict[tuple[str, int], list[Message]] = {}
    base = int(time.time() * 1000) - 1_000_000
    for codec in CODECS:
        topic = admin.create(f"codec-{codec}", partitions=2)
        for round_ in range(3):
            batch = [
                Message(
                    f"{codec} {round_} {n} ".encode() + bytes([n % 256]) * (n * 7 % 900),
                    key=None if n % 4 == 0 else f"k{n}".encode(),
                    headers=(("h", b"v"),) if n % 3 == 0 else (),
                    timestamp=base + n * 13 % 5000,
                    partition=n % 2,
                )
                for n in range(400)
            ]
            confluent.produce(broker.bootstrap, topic, batch, codec=codec, idempotence=True)
        for partition in (0, 1):
            wanted[topic, partition] = confluent.consume(broker.bootstrap, topic, 600, partition=partition)
    # Several segments, and a start that moved.
    admin.create("rolled", segment_bytes=1_048_576)
    for start in range(0, 600, 50):
        batch = [Message(b"x" * 8000, key=str(n).encode(), timestamp=base + n) for n in range(start, start + 50)]
        confluent.produce(broker.bootstrap, "rolled", batch)
    admin.delete_records("rolled", 150)
    wanted["rolled", 0] = confluent.consume(broker.bootstrap, "rolled", 450, offset=150)
    admin.create("append-time", message_timestamp_type="LogAppendTime")
    confluent.produce(broker.bootstrap, "append-time", [Message(b"x", timestamp=1) for _ in range(50)], codec="gzip")
    wanted["append-time", 0] = confluent.consume(broker.bootstrap, "append-time", 50)
    admin.create("configured", partitions=3, cleanup_policy="compact", retention_ms=1234567)
    admin.create("short-lived")
    admin.delete("short-lived")
    # A log start that moved is known after a crash once it is in its checkpoint, in Kafka too.
    starts = broker.data / "log-start-offset-checkpoint"
    eventually(lambda: starts.exists() and "rolled 0 150" in starts.read_text())
    eventually(lambda: settled(broker.data))
    return wanted


def read(broker: Daemon, wanted: dict[tuple[str, int], list[Message]]) -> dict[tuple[str, int], list[Message]]:
    return {
        (topic, partition): confluent.consume(
            broker.bootstrap, topic, len(records), partition=partition, offset=records[0].offset
        )
        for (topic, partition), records in wanted.items()
    }


def checks(broker: Daemon, wanted: dict[tuple[str, int], list[Message]]) -> None:
    """The records with offsets, timestamps, keys, values and headers; the bounds; the cluster's metadata."""
    assert read(broker, wanted) == wanted
    for (topic, partition), records in wanted.items():
        bounds = confluent.watermarks(broker.bootstrap, topic, partition)
        assert bounds == (records[0].offset, records[-1].offset + 1)
    admin = Admin(broker.bootstrap)
    assert {"configured", "rolled", *(topic for topic, _ in wanted)} <= admin.topics()
    assert "short-lived" not in admin.topics()
    assert admin.partitions("configured") == 3
    config = admin.config("configured")
    assert (config["cleanup.policy"], config["retention.ms"]) == ("compact", "1234567")


def producers(tools: Tools, topic: str, partition: int) -> list[list[str]]:
    """Producer state without the times, which are not part of what must survive."""
    text = tools.run("transactions", "describe-producers", "--topic", topic, "--partition", str(partition))
    return sorted(line.split()[:4] for line in text.splitlines()[1:])


def go_on(broker: Daemon, wanted: dict[tuple[str, int], list[Message]]) -> None:
    """The next writer continues where the last one stopped."""
    for (topic, partition), records in wanted.items():
        placed = confluent.produce(broker.bootstrap, topic, [Message(b"more", partition=partition)], idempotence=True)
        assert placed == [(partition, records[-1].offset + 1)]


def settled(data: Path) -> bool:
    """Nothing is left to be deleted."""
    return not any(path.suffix == ".deleted" or path.name.startswith("short-lived") for path in data.rglob("*"))


# Kafka preallocates its indexes: after a kill its own are unclean until recovery. Ours never are.
@pytest.mark.parametrize("stop", ["cleanly", pytest.param("killed", marks=pytest.mark.pylogd_only)])
def test_dump_log_segments_finds_nothing_wrong(new_broker: Callable[..., Daemon], tools: ToolHost, stop: str) -> None:
    broker = new_broker(SMALL)
    fill(broker)
    if stop == "cleanly":
        broker.stop()
    else:
        broker.kill()
    count = assert_files_clean(tools, broker.data)
    suffixes = {path.suffix for path in log_files(broker.data)}
    assert {".log", ".index", ".timeindex", ".snapshot"} <= suffixes
    assert count > 30


def test_dump_of_compacted_segments(new_broker: Callable[..., Daemon], tools: ToolHost) -> None:
    broker = new_broker({**SMALL, "log.cleaner.backoff.ms": "200"})
    Admin(broker.bootstrap).create(
        "compacted", cleanup_policy="compact", segment_ms=100, min_cleanable_dirty_ratio=0.01, min_compaction_lag_ms=0
    )
    for round_ in range(4):
        batch = [Message(b"x" * 2000, key=f"k{n % 20}".encode()) for n in range(200)]
        confluent.produce(broker.bootstrap, "compacted", batch, codec=CODECS[round_])
        time.sleep(0.15)
    folder = broker.data / "compacted-0"

    def cleaned() -> bool:
        confluent.produce(broker.bootstrap, "compacted", [Message(b"roll", key=b"roll")])
        checkpoint = broker.data / "cleaner-offset-checkpoint"
        lines = checkpoint.read_text().splitlines()[2:] if checkpoint.exists() else []
        return any(int(line.split()[2]) >= 800 for line in lines if line.startswith("compacted 0"))

    assert eventually(cleaned, timeout_s=60, pause_s=0.3)
    assert eventually(lambda: settled(broker.data))
    broker.stop()
    assert_files_clean(tools, folder, gaps=True)
    text = "".join(dump(tools, path, "--print-data-log", gaps=True) for path in sorted(folder.glob("*.log")))
    keys = [line.split("key: ")[1].split()[0] for line in text.splitlines() if "key: k" in line]
    assert sorted(set(keys)) == sorted(f"k{n}" for n in range(20))
    assert len(keys) == 20


@pytest.mark.parametrize("stop", ["cleanly", "killed"])
def test_kafka_opens_our_directory(
    new_broker: Callable[..., Daemon], new_kafka: Callable[..., Daemon], tools: ToolHost, stop: str
) -> None:
    ours = new_broker(SMALL)
    wanted = fill(ours)
    of_producers = {tp: producers(Tools(tools, ours.bootstrap), *tp) for tp in wanted}
    if stop == "cleanly":
        ours.stop()
    else:
        ours.kill()
    copy = ours.directory / "copy"
    shutil.copytree(ours.data, copy)
    # The voters are in the metadata log with the port they had, as for any Kafka that is started again.
    theirs = new_kafka({**SMALL, **same_ports(ours)}, data=copy)
    checks(theirs, wanted)
    assert {tp: producers(Tools(tools, theirs.bootstrap), *tp) for tp in wanted} == of_producers
    go_on(theirs, wanted)
    assert "ERROR" not in theirs.log_text(), theirs.log_tail()
    theirs.stop()


@pytest.mark.parametrize("stop", ["cleanly", "killed"])
def test_we_open_kafkas_directory(
    new_broker: Callable[..., Daemon], new_kafka: Callable[..., Daemon], tools: ToolHost, stop: str
) -> None:
    theirs = new_kafka(SMALL)
    wanted = fill(theirs)
    of_producers = {tp: producers(Tools(tools, theirs.bootstrap), *tp) for tp in wanted}
    if stop == "cleanly":
        theirs.stop()
    else:
        theirs.kill()
    copy = theirs.directory / "copy"
    shutil.copytree(theirs.data, copy)
    ours = new_broker({**SMALL, **same_ports(theirs)}, data=copy)
    checks(ours, wanted)
    assert {tp: producers(Tools(tools, ours.bootstrap), *tp) for tp in wanted} == of_producers
    go_on(ours, wanted)
    ours.stop()
    assert_files_clean(tools, ours.data)


def same_ports(other: Daemon) -> dict[str, str]:
    keys = ("listeners", "controller.quorum.bootstrap.servers")
    return {key: other.properties[key] for key in keys}


def test_sequences_go_on_under_the_other_broker(
    new_broker: Callable[..., Daemon], new_kafka: Callable[..., Daemon], tools: ToolHost
) -> None:
    """One open idempotent producer; the broker under it is replaced. Its next batch must be in sequence."""
    ours = new_broker(SMALL)
    Admin(ours.bootstrap).create("sequence")
    producer = confluent_kafka.Producer({"bootstrap.servers": ours.bootstrap, "enable.idempotence": True})
    for n in range(10):
        producer.produce("sequence", str(n).encode(), partition=0)
    assert producer.flush(30) == 0
    ours.stop()
    theirs = new_kafka({**SMALL, **same_ports(ours)}, data=ours.data)
    for n in range(10, 20):
        producer.produce("sequence", str(n).encode(), partition=0)
    assert producer.flush(60) == 0
    found = confluent.consume(ours.bootstrap, "sequence", 20)
    assert [m.value for m in found] == [str(n).encode() for n in range(20)]
    theirs.stop()
