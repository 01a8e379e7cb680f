"""A disk of one broker is lost while the cluster works: its replicas are led elsewhere, the broker goes on with the
rest, and after a restart with a new disk they come back."""

from __future__ import annotations

import shutil
from pathlib import Path

from pylogd.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from support.broker import Pylogd
from support.cluster import PylogdBroker, wait_for_brokers
from support.daemon import HOST, Daemon
from support.loaded_cluster import Load, LoadedCluster
from support.rawclient import Client
from support.wait import eventually

PARTITIONS = 4


class TwoDisks(LoadedCluster):
    """A combined node, and two brokers with two log directories each."""

    def __init__(self, directory: Path) -> None:
        first = Pylogd(directory / "one", {"replica.lag.time.max.ms": "2000"}, 1)
        controllers = f"{HOST}:{first.controller_port}"
        self.nodes: dict[int, Daemon] = {1: first}  # type: ignore[assignment]
        for n in (2, 3):
            disks = [directory / f"broker-{n}" / name for name in ("a", "b")]
            settings = {"log.dirs": ",".join(map(str, disks)), "replica.lag.time.max.ms": "2000"}
            # The high watermarks are written to every disk: this is when a lost one is noticed.
            settings["replica.high.watermark.checkpoint.interval.ms"] = "500"
            self.nodes[n] = PylogdBroker(directory / f"broker-{n}", n, controllers, settings)

    def start(self) -> TwoDisks:
        for node in self.nodes.values():
            node.start()
        wait_for_brokers(self.nodes[1].port, 3)
        return self

    def partitions(self, topic: str) -> dict[int, tuple[int, set[int]]]:
        with Client(self.nodes[1].port) as client:
            found = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12).topics[0]
        return {part.partition_index: (part.leader_id, set(part.isr_nodes)) for part in found.partitions}


def test_a_lost_disk_takes_only_its_own_replicas(tmp_path: Path) -> None:
    from confluent_kafka.admin import NewTopic

    cluster = TwoDisks(tmp_path).start()
    try:
        new = NewTopic("t", PARTITIONS, replica_assignment=[[2, 3, 1]] * PARTITIONS)
        cluster.admin.create_topics([new])["t"].result(30)
        eventually(lambda: all(state == (2, {1, 2, 3}) for state in cluster.partitions("t").values()))
        load = Load(cluster, "t")
        load.wait_for(200)
        lost = tmp_path / "broker-2" / "b"
        gone = {int(path.name.rpartition("-")[2]) for path in lost.glob("t-*")}
        assert 0 < len(gone) < PARTITIONS
        shutil.rmtree(lost)
        eventually(
            lambda: all(
                (2 not in isr and leader != 2) if index in gone else (leader == 2 and 2 in isr)
                for index, (leader, isr) in cluster.partitions("t").items()
            ),
            timeout_s=60,
        )
        load.wait_for(200)
        cluster.nodes[2].restart()
        eventually(lambda: all(isr == {1, 2, 3} for _, isr in cluster.partitions("t").values()), timeout_s=60)
        load.wait_for(200)
        load.stop()
        for index in range(PARTITIONS):
            copies = {path.read_bytes() for path in tmp_path.glob(f"*/*/t-{index}/00000000000000000000.log")}
            assert len(copies) == 1
    finally:
        for node in cluster.nodes.values():
            node.kill()
