"""Formatting of log directories: whose they are, what is written, and that Kafka writes the same bytes."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pylogd.broker.cluster import meta_properties
from pylogd.broker.cluster.formatting import (
    BOOTSTRAP_NAME,
    FIRST_SNAPSHOT,
    METADATA_PARTITION,
    FormatError,
    Formatter,
    Voter,
    bootstrap_batches,
    parse_initial_controllers,
)
from pylogd.broker.cluster.meta_properties import MetaProperties
from pylogd.config.broker import BrokerConfig
from pylogd.config.listeners import Endpoint
from pylogd.metadata.record_batches import decode_batches
from pylogd.protocol import uuids
from pylogd.runtime.clock import Clock, ManualClock
from pylogd.runtime.files import FileSystem
from pylogd.runtime.simulated.simulated_files import Crash, SimulatedFileSystem
from support.jvm import ToolHost

CLUSTER = "4L6g3nShT-eMCtK--X86sw"


def config(*directories: Path, **changes: str) -> BrokerConfig:
    values = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "localhost:9093",
        "log.dirs": ",".join(map(str, directories)),
    }
    values.update({name.replace("_", "."): value for name, value in changes.items()})
    return BrokerConfig(values)


def formatter(settings: BrokerConfig, clock: Clock | None = None) -> Formatter:
    return Formatter(settings, FileSystem(), clock or ManualClock(), os.urandom)


def test_empty_directories_are_formatted_at_first_start(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    done = formatter(config(first, second)).prepare()
    assert done.formatted == [str(first), str(second)]
    assert len(set(done.ids.values())) == 2
    for path in (first, second):
        meta = meta_properties.parse((path / "meta.properties").read_text())
        assert meta == MetaProperties(done.cluster_id, 1, done.ids[str(path)])
        assert (path / BOOTSTRAP_NAME).exists()
    snapshot = (first / METADATA_PARTITION / FIRST_SNAPSHOT).read_bytes()
    [voter] = [record.message for batch in decode_batches(snapshot) for record in batch.records][2].voters
    assert voter.voter_directory_id == done.ids[str(first)]
    assert [(e.name, e.host, e.port) for e in voter.endpoints] == [("CONTROLLER", "127.0.0.1", 9093)]
    assert not (second / METADATA_PARTITION).exists()


def test_a_second_start_changes_nothing(tmp_path: Path) -> None:
    done = formatter(config(tmp_path / "a")).prepare()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    again = formatter(config(tmp_path / "a")).prepare()
    assert again == done._replace(formatted=[])
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_a_new_directory_joins_the_cluster_of_the_others(tmp_path: Path) -> None:
    done = formatter(config(tmp_path / "b")).prepare()
    more = formatter(config(tmp_path / "b", tmp_path / "a")).prepare()
    assert more.cluster_id == done.cluster_id
    assert more.formatted == [str(tmp_path / "a")]
    assert not (tmp_path / "a" / METADATA_PARTITION).exists()


def test_a_static_quorum_has_no_first_snapshot(tmp_path: Path) -> None:
    formatter(config(tmp_path / "a", controller_quorum_voters="1@127.0.0.1:9093")).prepare()
    assert (tmp_path / "a" / "meta.properties").exists()
    assert not (tmp_path / "a" / METADATA_PARTITION).exists()


def test_a_separate_metadata_directory_holds_the_snapshot(tmp_path: Path) -> None:
    formatter(config(tmp_path / "a", metadata_log_dir=str(tmp_path / "m"))).prepare()
    assert (tmp_path / "m" / METADATA_PARTITION / FIRST_SNAPSHOT).exists()
    assert not (tmp_path / "a" / METADATA_PARTITION).exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"controller_quorum_voters": "1@127.0.0.1:9093,2@other:9093"},
        {"controller_quorum_bootstrap_servers": "127.0.0.1:9093,other:9093"},
        {"controller_quorum_bootstrap_servers": "127.0.0.1:9094"},
        {"process_roles": "broker", "listeners": "PLAINTEXT://127.0.0.1:9092"},
    ],
)
def test_a_node_of_a_larger_quorum_does_not_invent_a_cluster(tmp_path: Path, changes: dict[str, str]) -> None:
    with pytest.raises(FormatError, match="pylogd format"):
        formatter(config(tmp_path / "a", **changes)).prepare()
    assert not (tmp_path / "a").exists()


def test_directories_of_another_node_cluster_or_twin_are_refused(tmp_path: Path) -> None:
    formatter(config(tmp_path / "a")).prepare()
    with pytest.raises(FormatError, match=r"belongs to node 1, but node\.id is 2"):
        formatter(config(tmp_path / "a", node_id="2")).prepare()
    with pytest.raises(FormatError, match=f", not to {CLUSTER}"):
        formatter(config(tmp_path / "a")).verify(CLUSTER)

    formatter(config(tmp_path / "other")).prepare()
    with pytest.raises(FormatError, match="belongs to cluster"):
        formatter(config(tmp_path / "a", tmp_path / "other")).prepare()

    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "meta.properties").write_bytes((tmp_path / "a" / "meta.properties").read_bytes())
    with pytest.raises(FormatError, match="one is a copy of the other"):
        formatter(config(tmp_path / "a", tmp_path / "copy")).prepare()


def test_metadata_that_vanished_is_not_replaced_by_an_empty_cluster(tmp_path: Path) -> None:
    both = config(tmp_path / "a", tmp_path / "b")
    formatter(both).prepare()
    shutil.rmtree(tmp_path / "a")
    with pytest.raises(FormatError, match="metadata is missing"):
        formatter(both).prepare()
    assert not (tmp_path / "a").exists()


def test_metadata_in_the_wrong_place_is_refused(tmp_path: Path) -> None:
    formatter(config(tmp_path / "a")).prepare()
    formatter(config(tmp_path / "a", tmp_path / "b")).prepare()
    with pytest.raises(FormatError, match="holds the metadata log"):
        formatter(config(tmp_path / "b", tmp_path / "a")).prepare()


def test_logs_without_meta_properties_are_not_touched(tmp_path: Path) -> None:
    partition = tmp_path / "a" / "orders-0"
    partition.mkdir(parents=True)
    (partition / "00000000000000000000.log").write_bytes(b"data")
    with pytest.raises(FormatError, match=r"data in orders-0 but no meta\.properties"):
        formatter(config(tmp_path / "a")).prepare()
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["orders-0"]


def test_formatting_that_was_cut_short_is_done_again(tmp_path: Path) -> None:
    formatter(config(tmp_path / "a")).prepare()
    (tmp_path / "a" / "meta.properties").unlink()
    done = formatter(config(tmp_path / "a")).prepare()
    snapshot = (tmp_path / "a" / METADATA_PARTITION / FIRST_SNAPSHOT).read_bytes()
    voters = [record.message for batch in decode_batches(snapshot) for record in batch.records][2].voters
    assert voters[0].voter_directory_id == done.ids[str(tmp_path / "a")]


@pytest.mark.parametrize("seed", range(3))
def test_a_crash_at_any_step_of_formatting_is_survived(seed: int) -> None:
    # The metadata directory is the first one, whatever its name sorts like.
    settings = config(Path("/data/b"), Path("/data/a"))
    whole = SimulatedFileSystem(seed)
    Formatter(settings, whole, ManualClock(), random.Random(seed).randbytes).prepare()
    for step in range(1, whole.steps + 1):
        files = SimulatedFileSystem(seed * 1000 + step)
        files.crash_at = step
        with pytest.raises(Crash):
            Formatter(settings, files, ManualClock(), random.Random(step).randbytes).prepare()
        survived = files.after_crash()
        done = Formatter(settings, survived, ManualClock(), random.Random(-step).randbytes).prepare()
        snapshot = survived.read_bytes(f"/data/b/{METADATA_PARTITION}/{FIRST_SNAPSHOT}")
        voters = [record.message for batch in decode_batches(snapshot) for record in batch.records][2].voters
        assert voters[0].voter_directory_id == done.ids["/data/b"]
        for path in ("/data/a", "/data/b"):
            meta = meta_properties.read(survived, path)
            assert meta == MetaProperties(done.cluster_id, 1, done.ids[path])
            assert len(list(decode_batches(survived.read_bytes(f"{path}/{BOOTSTRAP_NAME}")))) == 3


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("version=1\nnode.id=1\n", r"cluster\.id is missing"),
        ("version=1\ncluster.id=x\nnode.id=one\n", r"node\.id is not a number"),
        ("version=7\n", "unknown version 7"),
        ("version=1\ncluster.id=x\nnode.id=1\ndirectory.id=short\n", "not a uuid"),
    ],
)
def test_a_broken_metadata_directory_stops_the_start(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(FormatError, match=reason):
        formatter(config(tmp_path)).prepare()


def test_a_broken_data_directory_is_left_out(tmp_path: Path) -> None:
    formatter(config(tmp_path / "a", tmp_path / "b")).prepare()
    (tmp_path / "b" / "meta.properties").write_text("version=7\n")
    done = formatter(config(tmp_path / "a", tmp_path / "b")).prepare()
    assert list(done.ids) == [str(tmp_path / "a")]
    assert list(done.failed) == [str(tmp_path / "b")]


def test_a_file_in_place_of_the_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(FormatError, match="is not a directory"):
        formatter(config(tmp_path / "a")).prepare()


@pytest.mark.parametrize("text", ["version=1\ncluster.id=x\nnode.id=1\n", "broker.id=1\ncluster.id=x\n"])
def test_an_old_file_gets_a_directory_id(tmp_path: Path, text: str) -> None:
    (tmp_path / "meta.properties").write_text(text)
    done = formatter(config(tmp_path)).prepare()
    meta = meta_properties.parse((tmp_path / "meta.properties").read_text())
    assert meta == MetaProperties("x", 1, done.ids[str(tmp_path)])


def test_a_directory_that_another_process_formats_is_left_alone(tmp_path: Path) -> None:
    lock = FileSystem().lock(str(tmp_path / ".lock"))
    with pytest.raises(FormatError, match="in use by another process"):
        formatter(config(tmp_path)).prepare()
    lock.release()
    slow, fast = formatter(config(tmp_path)), formatter(config(tmp_path))
    fast.prepare()
    with pytest.raises(FormatError, match="formatted by another process meanwhile"):
        slow.prepare()


def test_initial_controllers() -> None:
    identity = bytes(range(16))
    text = f"1@a:9093:{uuids.to_text(identity)},2@[::1]:9094:{uuids.to_text(identity)}"
    assert parse_initial_controllers(text, "CONTROLLER") == [
        Voter(1, identity, Endpoint("CONTROLLER", "a", 9093)),
        Voter(2, identity, Endpoint("CONTROLLER", "::1", 9094)),
    ]
    for bad in ("1@a:9093", "a:9093:x", f"x@a:1:{uuids.to_text(identity)}"):
        with pytest.raises(FormatError, match="id@host:port:directory-id"):
            parse_initial_controllers(bad, "CONTROLLER")


class ScriptedClock(Clock):
    """Gives the times at which Kafka wrote its batches."""

    __slots__ = ("_times",)

    def __init__(self, times: Iterator[int]) -> None:
        self._times = times

    def now_ms(self) -> int:
        return next(self._times)


def without_times(data: bytes) -> bytes:
    """A snapshot's batches without crc, timestamps, and the time inside the header record."""
    masked = bytearray(data)
    position = 0
    for batch in decode_batches(data):
        masked[position + 17 : position + 21] = bytes(4)
        masked[position + 27 : position + 43] = bytes(16)
        position += batch.size
    header = masked.index(b"\x00\x00\x00\x03\x16") + 5  # control key, then the value's length
    masked[header + 2 : header + 10] = bytes(8)
    return bytes(masked)


@pytest.mark.jvm
def test_kafkas_own_formatter_writes_the_same_bytes(tmp_path: Path, tools: ToolHost) -> None:
    theirs, ours = tmp_path / "kafka", tmp_path / "pylogd"
    settings = config(theirs)
    properties = tmp_path / "server.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in settings.static.items()))
    result = tools.run("kafka.tools.StorageTool", "format", "--standalone", "-t", CLUSTER, "-c", str(properties))
    assert (theirs / "meta.properties").exists(), result
    meta = meta_properties.parse((theirs / "meta.properties").read_text())
    assert meta.directory_id is not None

    bootstrap = (theirs / BOOTSTRAP_NAME).read_bytes()
    times = iter([batch.timestamp_ms for batch in decode_batches(bootstrap)])
    assert b"".join(bootstrap_batches(ScriptedClock(times))) == bootstrap

    voter = Voter(1, meta.directory_id, Endpoint("CONTROLLER", "127.0.0.1", 9093))
    formatter(config(ours), ManualClock()).format(CLUSTER, [voter])
    name = f"{METADATA_PARTITION}/{FIRST_SNAPSHOT}"
    assert without_times((ours / name).read_bytes()) == without_times((theirs / name).read_bytes())

    def lines(path: Path) -> list[str]:
        text = (path / "meta.properties").read_text().splitlines()
        return [text[0], *text[2:]]

    assert lines(ours) == lines(theirs)
    names = {path.relative_to(theirs) for path in theirs.rglob("*")}
    assert {path.relative_to(ours) for path in ours.rglob("*")} == names | {Path(".lock")}


@pytest.mark.jvm
def test_kafka_recognizes_our_directories(tmp_path: Path, tools: ToolHost) -> None:
    settings = config(tmp_path / "a", tmp_path / "b")
    formatter(settings).prepare()
    properties = tmp_path / "server.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in settings.static.items()))
    result = tools.run("kafka.tools.StorageTool", "info", "-c", str(properties))
    assert result.code == 0, result
    assert "Found log directories" in result.stdout
    assert "problem" not in result.stdout, result
