"""Random faults under producers and consumers, then a look at everything they saw: in the spirit of Jepsen's checker
for Kafka.

Every acknowledged record is in the final log at the offset that was acknowledged, once; what one producer sent to one
partition is in order; what a consumer saw is the final log without skips, also while faults happened; the replicas are
equal to the byte. Faults come one at a time, and the next when the cluster is whole again, so a majority always lives.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import NewTopic
from pylogd.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from support.faults import FAULTS, strike
from support.loaded_cluster import SETTINGS
from support.partitioned_cluster import PartitionedCluster
from support.rawclient import Client
from support.scale import scaled
from support.wait import eventually

FAULT_COUNT = scaled(test=5, soak=100)
KINDS = list(FAULTS)
PARTITIONS = 3
PRODUCERS = 2
TOPIC = "chaos"


class Writer:
    """An idempotent producer that spreads numbers over the partitions."""

    def __init__(self, cluster: PartitionedCluster, name: str) -> None:
        self.name = name
        #: partition -> (offset, value) in the order of their acknowledgements
        self.acknowledged: dict[int, list[tuple[int | None, bytes]]] = {n: [] for n in range(PARTITIONS)}
        self.failed: list[KafkaError] = []
        self.stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 2,
                "retry.backoff.ms": 20,
                "request.timeout.ms": 3000,
                "socket.timeout.ms": 4000,
                "delivery.timeout.ms": 120_000,
                "log_level": 0,
            }
        )
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        number = 0
        while not self.stop.is_set():
            value = f"{self.name} {number:08d}".encode()
            try:
                self._producer.produce(TOPIC, value, partition=number % PARTITIONS, on_delivery=self._delivered)
                number += 1
            except BufferError:
                self._producer.poll(0.05)
            self._producer.poll(0.002)
        self.left = self._producer.flush(120)

    def _delivered(self, error: KafkaError | None, message: object) -> None:
        if error is not None:
            self.failed.append(error)
        else:
            found = message.partition(), message.offset(), message.value()  # type: ignore[attr-defined]
            self.acknowledged[found[0]].append(found[1:])

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))


class Reader:
    """Polls from the beginning; offsets must follow each other."""

    def __init__(self, cluster: PartitionedCluster) -> None:
        self.seen: dict[int, list[bytes]] = {n: [] for n in range(PARTITIONS)}
        self.skips: list[str] = []
        self.stop = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "none",
                "enable.auto.commit": False,
                "socket.timeout.ms": 4000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(TOPIC, n, OFFSET_BEGINNING) for n in range(PARTITIONS)])
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self.stop.is_set():
            message = self._consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            seen = self.seen[message.partition()]
            if message.offset() != len(seen):
                self.skips.append(f"partition {message.partition()}: {message.offset()} after {len(seen) - 1}")
                self.stop.set()
            seen.append(message.value())
        self._consumer.close()

    @property
    def count(self) -> int:
        return sum(map(len, self.seen.values()))


def is_whole(cluster: PartitionedCluster) -> bool:
    """Every replica of every partition is in sync, as every broker sees it, and every controller votes: then one node
    may fail, and even lose its disk."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
    for node in cluster.nodes.values():
        with Client(node.port) as client:
            topic = client.ask(request, 12).topics[0]
        if len(topic.partitions) != PARTITIONS:
            return False
        if any(set(part.isr_nodes) != set(cluster.nodes) for part in topic.partitions):
            return False
    return cluster.all_vote()


def faults_of(chance: random.Random) -> list[str]:
    """The first kinds once each, in any order, in a short run; a long one takes all as they come."""
    if len(KINDS) > FAULT_COUNT:
        kinds = [*KINDS[:FAULT_COUNT]]
        chance.shuffle(kinds)
        return kinds
    return chance.choices(KINDS, k=FAULT_COUNT)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PartitionedCluster]:
    made = PartitionedCluster(tmp_path_factory.mktemp("chaos"), 3, SETTINGS)
    made.start()
    try:
        yield made
        for node in made.nodes.values():
            node.assert_alive()
            node.assert_log_clean()
    finally:
        made.kill()


def test_nothing_acknowledged_is_lost_doubled_or_out_of_order(cluster: PartitionedCluster) -> None:
    seed = int(os.environ.get("PYLOGD_SEED", "0")) or scaled(test=7, soak=random.SystemRandom().randrange(1 << 32))
    chance = random.Random(seed)
    new = NewTopic(TOPIC, PARTITIONS, replica_assignment=[[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    cluster.admin.create_topics([new])[TOPIC].result(30)
    eventually(lambda: is_whole(cluster))
    writers = [Writer(cluster, f"writer-{n}") for n in range(PRODUCERS)]
    reader = Reader(cluster)
    struck = []
    for kind in faults_of(chance):
        before = sum(writer.count for writer in writers)
        eventually(lambda before=before: sum(writer.count for writer in writers) > before + 100, timeout_s=90)
        struck.append(strike(cluster, kind, chance))
        eventually(lambda: is_whole(cluster), timeout_s=90, what=f"seed {seed}: {struck}")
    for writer in writers:
        writer.stop.set()
    for writer in writers:
        writer.thread.join(150)
    total = sum(writer.count for writer in writers)
    eventually(lambda: reader.count >= total or reader.stop.is_set(), timeout_s=90)
    reader.stop.set()
    reader.thread.join(30)
    story = f"seed {seed}: {struck}"

    assert [writer.failed for writer in writers] == [[]] * PRODUCERS, story
    assert reader.skips == [], story
    for partition in range(PARTITIONS):
        log = reader.seen[partition]
        assert len(set(log)) == len(log), f"{story}: doubled"
        for writer in writers:
            mine = [value for value in log if value.startswith(writer.name.encode())]
            assert {value for _, value in writer.acknowledged[partition]} == set(mine), f"{story}: lost or never sent"
            for offset, value in writer.acknowledged[partition]:
                # A repetition of something old is acknowledged without its offset.
                assert offset is None or log[offset] == value, f"{story}: {value!r} was acknowledged at {offset}"
            assert mine == sorted(mine), f"{story}: out of order"
    eventually(lambda: is_whole(cluster), timeout_s=60)
    for partition in range(PARTITIONS):
        copies = {
            b"".join(path.read_bytes() for path in sorted((node.data / f"{TOPIC}-{partition}").glob("*.log")))
            for node in cluster.nodes.values()
        }
        assert len(copies) == 1, f"{story}: replicas differ"


pytestmark = pytest.mark.timeout(scaled(test=300, soak=7200))
