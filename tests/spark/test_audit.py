"""The audit on a real Spark, over the files of a real cluster: silent over what brokers wrote, whether they run, were
stopped or killed, and exact about four damages that the test planted."""

from __future__ import annotations

import json
import os
import random
import shutil
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from pylogd.audit import Report
from pylogd.audit.model import Kind
from pylogd.protocol import batch as batches
from pylogd.runtime.files import FileSystem
from pylogd.spark_connector.audit import run
from pylogd.spark_connector.spark_command import main
from pylogd.storage import checkpoint_file
from support.loaded_cluster import SETTINGS, LoadedCluster
from support.scale import scaled
from support.wait import eventually

pytestmark = [pytest.mark.spark, pytest.mark.pylogd_only]
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
SEGMENT_BYTES = 1 << 20
VALUES = scaled(test=300, soak=20_000)
QUICK = {
    "log.cleaner.backoff.ms": "200",
    "log.initial.task.delay.ms": "100",
    "replica.high.watermark.checkpoint.interval.ms": "200",
    "group.initial.rebalance.delay.ms": "0",
}
chance = random.Random(7)


@dataclass
class Stopped:
    directories: list[Path]
    running: Report


def write(bootstrap: str, topic: str, codec: str, outcome: str) -> None:
    """A transaction in every partition, or plain records."""
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "compression.type": codec, "batch.size": 20_000}
    if outcome != "plain":
        settings["transactional.id"] = f"{topic}.{codec}"
    producer = Producer(settings)
    if outcome != "plain":
        producer.init_transactions(60)
        producer.begin_transaction()
    for number in range(VALUES):
        # Half random: it must not vanish when it is compressed.
        value = chance.randbytes(2_500) + b"x" * 2_500
        producer.produce(topic, value, key=b"%d" % (number % 50), partition=number % 2)
        producer.poll(0)
    assert producer.flush(120) == 0
    if outcome == "commit":
        producer.commit_transaction(60)
    elif outcome == "abort":
        producer.abort_transaction(60)


def create(cluster: LoadedCluster, topic: str, **config: str) -> None:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    new = NewTopic(topic, 2, 3, config={"segment.bytes": str(SEGMENT_BYTES), **settings})
    cluster.admin.create_topics([new])[topic].result(30)
    eventually(lambda: cluster.state(topic)[0] >= 0)


@pytest.fixture(scope="module")
def stopped(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    """The data directories of three brokers after a life with transactions, compaction and every codec; one of them
    was killed."""
    cluster = LoadedCluster(tmp_path_factory.mktemp("audited"), 3, {**SETTINGS, **QUICK})
    cluster.start()
    try:
        create(cluster, "plain")
        create(cluster, "compacted", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
        for codec, outcome in zip(CODECS, ["plain", "commit", "abort", "commit", "abort"]):
            write(cluster.bootstrap, "plain", codec, outcome)
            write(cluster.bootstrap, "compacted", codec, outcome)
        directories = [node.data for node in cluster.nodes.values()]
        eventually(lambda: all(map(compacted, directories)), timeout_s=60)
        load = threading.Thread(target=write, args=(cluster.bootstrap, "plain", "lz4", "plain"))
        load.start()
        running = run(spark, list(map(str, directories)))
        load.join()
        cluster.nodes[1].terminate()
        eventually(lambda: cluster.state("plain")[1] == {2, 3}, timeout_s=60)
        cluster.nodes[2].kill()
        cluster.nodes[3].terminate()
    finally:
        cluster.kill()
    return Stopped(directories, running)


def compacted(data: Path) -> bool:
    cleaned = checkpoint_file.read_offsets(FileSystem(), str(data / checkpoint_file.CLEANER_OFFSET))
    return all(cleaned.get(("compacted", index), 0) > 0 for index in range(2))


def test_nothing_is_found_in_what_brokers_wrote(spark: Any, stopped: Stopped) -> None:
    assert stopped.running.findings == []
    report = run(spark, list(map(str, stopped.directories)))
    assert report.findings == []
    by_name = {partition.name: partition for partition in report.partitions}
    for index in range(2):
        plain, cleaned = by_name[f"plain-{index}"], by_name[f"compacted-{index}"]
        assert [len(partition.replicas) for partition in (plain, cleaned)] == [3, 3]
        assert all(each.segments > 2 and each.size > 2 * SEGMENT_BYTES for each in plain.replicas)
        # Everything committed was compared, in the compacted topic what no cleaner touched.
        assert plain.compared == (0, min(each.end for each in plain.replicas))
        assert cleaned.compared is None or cleaned.compared[0] > 0
    assert {name for name in by_name if name.startswith("__")} >= {"__cluster_metadata-0", "__transaction_state-0"}


def logs(data: Path, partition: str) -> list[Path]:
    return sorted((data / partition).glob("*.log"))


def test_planted_damage_is_found_and_nothing_else(
    spark: Any, stopped: Stopped, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = []
    for number, directory in enumerate(stopped.directories, 1):
        nodes.append(tmp_path / f"node-{number}")
        shutil.copytree(directory, nodes[-1])
    expected = {
        flip_a_bit(nodes[0], "plain-0"),
        lose_a_segment(nodes[1], "plain-0"),
        tear_the_tail(nodes[2], "plain-1"),
        diverge(nodes[0], "plain-1"),
    }
    out = tmp_path / "report.jsonl"
    assert main(["audit", "--json", str(out), *map(str, nodes)]) == 1
    printed = capsys.readouterr().out
    *partitions, last = [json.loads(line) for line in out.read_text().splitlines()]
    found = set()
    for partition in partitions:
        name = f"{partition['topic']}-{partition['partition']}"
        for replica in partition["replicas"]:
            for finding in replica["findings"]:
                found.add((finding["kind"], f"{replica['directory']}/{name}/{finding['file']}", finding["offset"]))
        for finding in partition["findings"]:
            found.add((finding["kind"], name, finding["offset"]))
            assert "node 1 differs from node 2, 3" in finding["message"]
    assert found == expected
    assert last["summary"]["findings"] == 4
    assert not last["clean"]
    for kind, place, _ in expected:
        assert any(line.startswith(f"{kind}: {place}") for line in printed.splitlines()), printed


Expected = tuple[str, str, int]


def flip_a_bit(data: Path, partition: str) -> Expected:
    path = logs(data, partition)[1]
    content = bytearray(path.read_bytes())
    position, header = list(batches.iter_headers(content))[3]
    content[position + header.length // 2] ^= 4
    path.write_bytes(content)
    return Kind.CORRUPT, str(path), header.base_offset


def lose_a_segment(data: Path, partition: str) -> Expected:
    lost, following = logs(data, partition)[1:3]
    for path in lost.parent.glob(f"{lost.stem}.*"):
        path.unlink()
    return Kind.MISSING_SEGMENT, str(following), int(lost.stem)


def tear_the_tail(data: Path, partition: str) -> Expected:
    path = logs(data, partition)[-1]
    *_, (position, header) = batches.iter_headers(path.read_bytes())
    os.truncate(path, position + header.length - 5)
    return Kind.TORN, str(path), header.base_offset


def diverge(data: Path, partition: str) -> Expected:
    """The same offsets, another value, a checksum that holds."""
    path = logs(data, partition)[0]
    content = bytearray(path.read_bytes())
    position, header = list(batches.iter_headers(content))[2]
    end = position + header.length
    content[end - 100] ^= 1
    crc = batches.compute_crc(content, position, end)
    content[position + batches.CRC_POS : position + batches.CRC_POS + 4] = crc.to_bytes(4, "big")
    path.write_bytes(content)
    return Kind.DIVERGED, partition, header.base_offset
