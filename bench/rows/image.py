"""The controller's image with 200,000 partitions: memory, replay, snapshots, and what is decided about all of it.

In process and without sockets, since no machine at hand holds a cluster of that size: 2,000 topics of 100 partitions
with three replicas each, on 30 brokers in three racks, made by the controller's own decisions and framed as the log has
them. Every step runs in a Python process of its own, so that memory is that of the image and nothing else. Times are
CPU seconds. The broker that is lost is one of 30: it leads a thirtieth of the partitions and follows in a fifteenth.
There is no column for Kafka: the figures say what one controller of ours can carry.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random

from pylogd.config.broker import BrokerConfig
from pylogd.controller.config_rules import ConfigRules
from pylogd.controller.decide import brokers, topics
from pylogd.controller.heartbeats import Heartbeats
from pylogd.controller.state import ControllerState, Settings
from pylogd.metadata import feature_levels
from pylogd.metadata.image import ClusterImage
from pylogd.metadata.record_batches import VersionedRecord, decode_batches, metadata_batch
from pylogd.metadata.snapshot import SnapshotId, image_records, replay_snapshot, snapshot_batches, write_snapshot
from pylogd.protocol.messages import metadata_records as records
from pylogd.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pylogd.runtime.files import FileSystem

from bench import machine
from bench.harness import Bench
from bench.table import Row

BROKERS, RACKS, REPLICAS, PER_TOPIC = 30, 3, 3, 100
SNAPSHOT_ID = SnapshotId(1 << 20, 1)


def measure(bench: Bench) -> list[Row]:
    partitions = int(bench.scale(200_000, 10_000))
    directory = bench.directory / "image"
    directory.mkdir()
    spawn = multiprocessing.get_context("spawn")
    rows: list[Row] = []
    with ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as processes:
        for step in (_create, _replay, _load):
            figures = processes.submit(step, directory, partitions).result()
            bench.say(", ".join(f"{name} {value:,.3g} {unit}" for (name, unit), value in figures.items()))
            rows += [
                Row("image", f"{partitions:,} partitions: {name}", unit, None, value)
                for (name, unit), value in figures.items()
            ]
    return rows


Figures = dict[tuple[str, str], float]


@contextmanager
def _cpu(figures: Figures, name: str) -> Iterator[None]:
    started = time.process_time()
    yield
    figures[name, "CPU s"] = time.process_time() - started


def _state(image: ClusterImage) -> ControllerState:
    chance = Random(1)
    rules = ConfigRules(BrokerConfig({"node.id": "1", "process.roles": "broker,controller"}))
    return ControllerState(image, Heartbeats(), Settings(1, "image"), rules, chance, lambda: chance.randbytes(16))


def _registrations() -> list[VersionedRecord]:
    level = feature_levels.METADATA_LATEST
    made: list[VersionedRecord] = [
        (records.FeatureLevelRecord(name=feature_levels.METADATA_VERSION, feature_level=level), 0),
        (records.FeatureLevelRecord(name=feature_levels.ELR_VERSION, feature_level=1), 0),
    ]
    for broker_id in range(BROKERS):
        registered = records.RegisterBrokerRecord(
            broker_id=broker_id,
            broker_epoch=broker_id,
            incarnation_id=bytes([broker_id]) * 16,
            rack=f"rack-{broker_id % RACKS}",
            fenced=False,
            end_points=[records.BrokerEndpoint(name="PLAINTEXT", host=f"broker-{broker_id}", port=9092)],
            log_dirs=[bytes([broker_id, 1]) * 8],
        )
        made.append((registered, feature_levels.register_broker_record_version(level)))
    return made


def _create(directory: Path, partitions: int) -> Figures:
    """The log of a cluster whose topics were created one request each."""
    state = _state(ClusterImage())
    figures: Figures = {}
    offset = 0
    with (directory / "log").open("wb") as log, _cpu(figures, "placed, created and framed"):
        for number in range(-1, partitions // PER_TOPIC):
            if number < 0:
                made = _registrations()
            else:
                topic = CreatableTopic(f"topic-{number}", num_partitions=PER_TOPIC, replication_factor=REPLICAS)
                made = topics.create_topics(state, CreateTopicsRequest(topics=[topic]), 7).records
            log.write(metadata_batch(made, base_offset=offset, epoch=1, timestamp_ms=0))
            for record, _ in made:
                state.image.replay(record, offset)
                offset += 1
    return figures


def _replay(directory: Path, partitions: int) -> Figures:
    """As a controller that starts without a snapshot; then it writes one, and loses a broker."""
    figures: Figures = {}
    data = (directory / "log").read_bytes()
    image = ClusterImage()
    before = _resident_mb()
    with _cpu(figures, "log replayed"):
        for batch in decode_batches(data):
            for offset, record in enumerate(batch.records, batch.base_offset):
                image.replay(record, offset)
    figures["image, resident", "MB"] = _resident_mb() - before
    assert sum(1 for _ in image.partitions()) == partitions
    path = directory / SNAPSHOT_ID.filename
    with _cpu(figures, "snapshot written"):
        made = snapshot_batches(
            image_records(image.freeze()), epoch=1, last_contained_timestamp_ms=0, now_ms=0, kraft_version=1
        )
        size = write_snapshot(FileSystem(), str(path), made)
    figures["snapshot", "MB"] = size / 1e6
    state = _state(image)
    with _cpu(figures, "leaders elected for those of a lost broker"):
        changes = brokers.fence_broker(state, 1, 1).records
        for offset, (record, _) in enumerate(changes, image.offset + 1):
            image.replay(record, offset)
    assert len(changes) > partitions // BROKERS
    return figures


def _load(directory: Path, partitions: int) -> Figures:
    """As a controller or a broker that starts from the snapshot."""
    figures: Figures = {}
    data = (directory / SNAPSHOT_ID.filename).read_bytes()
    image = ClusterImage()
    with _cpu(figures, "snapshot loaded"):
        replay_snapshot(data, image, SNAPSHOT_ID)
    assert sum(1 for _ in image.partitions()) == partitions
    return figures


def _resident_mb() -> float:
    gc.collect()
    return machine.resident_mb(os.getpid())
