"""Three real processes, replication factor 3, min.insync.replicas 2: brokers and controllers are killed, paused and
restarted under an idempotent producer, and nothing acknowledged is lost, doubled or out of order."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from support.cluster import PylogdBroker
from support.daemon import HOST
from support.loaded_cluster import Load, LoadedCluster, check
from support.produce import produce_request, records
from support.rawclient import Client
from support.wait import eventually


def test_a_killed_leader_costs_nothing_that_was_acknowledged(cluster: LoadedCluster) -> None:
    cluster.create("killed-leader")
    load = Load(cluster, "killed-leader")
    for _ in range(3):
        load.wait_for(200)
        leader = cluster.state("killed-leader")[0]
        cluster.nodes[leader].kill()
        load.wait_for(200)
        cluster.nodes[leader].start()
        cluster.wait_in_sync("killed-leader")
    check(cluster, load)


def test_a_killed_controller_does_not_stop_the_data(cluster: LoadedCluster) -> None:
    cluster.create("killed-controller")
    load = Load(cluster, "killed-controller")
    load.wait_for(200)
    active = cluster.active_controller()
    cluster.nodes[active].kill()
    load.wait_for(200)
    assert cluster.active_controller() != active
    cluster.create("after-controller")
    cluster.nodes[active].start()
    cluster.wait_in_sync("killed-controller")
    check(cluster, load)


def test_a_paused_follower_leaves_the_isr_and_comes_back(cluster: LoadedCluster) -> None:
    cluster.create("paused-follower")
    load = Load(cluster, "paused-follower")
    load.wait_for(100)
    leader, active = cluster.state("paused-follower")[0], cluster.active_controller()
    paused = next(n for n in cluster.nodes if n not in (leader, active))
    cluster.signal(paused, signal.SIGSTOP)
    try:
        cluster.wait_in_sync("paused-follower", *(n for n in cluster.nodes if n != paused))
        load.wait_for(100)
    finally:
        cluster.signal(paused, signal.SIGCONT)
    check(cluster, load)


def test_a_paused_leader_is_replaced_and_its_late_writes_are_refused(cluster: LoadedCluster) -> None:
    active = cluster.active_controller()
    first = next(n for n in cluster.nodes if n != active)
    cluster.create("paused-leader", first, *(n for n in cluster.nodes if n != first))
    load = Load(cluster, "paused-leader")
    load.wait_for(100)
    cluster.signal(first, signal.SIGSTOP)
    try:
        # When the session of the silent leader has run out; acknowledgements of before may still come in until then.
        eventually(lambda: cluster.state("paused-leader")[0] != first, timeout_s=60)
        load.wait_for(100)
    finally:
        cluster.signal(first, signal.SIGCONT)
    check(cluster, load)


def test_a_leader_that_was_alone_is_cut_back_to_the_new_history(cluster: LoadedCluster) -> None:
    active = cluster.active_controller()
    alone = next(n for n in cluster.nodes if n != active)
    others = [n for n in cluster.nodes if n != alone]
    cluster.create("diverged", alone, *others)
    node = cluster.nodes[alone]
    with Client(node.port) as client:
        assert client.ask(produce_request("diverged", records(b"common")), 9).responses
        for other in others:
            cluster.signal(other, signal.SIGSTOP)
        try:
            for n in range(50):
                # The first of these may still reach a follower's socket; the others reach nobody.
                client.ask(produce_request("diverged", records(b"alone %d" % n), acks=1), 9)
        finally:
            node.kill()
            for other in others:
                cluster.signal(other, signal.SIGCONT)
    eventually(lambda: cluster.state("diverged")[0] in others, timeout_s=60)
    load = Load(cluster, "diverged")
    load.wait_for(100)
    load.stop()
    node.start()
    cluster.wait_in_sync("diverged")
    assert cluster.bytes_of(alone, "diverged") == cluster.bytes_of(others[0], "diverged")
    assert b"alone 49" not in cluster.bytes_of(alone, "diverged")


def test_a_clean_restart_of_every_broker_is_not_noticed(cluster: LoadedCluster) -> None:
    cluster.create("rolling")
    load = Load(cluster, "rolling")
    for node in cluster.nodes.values():
        load.wait_for(100)
        node.restart()
        cluster.wait_in_sync("rolling")
    check(cluster, load)


def test_a_broker_of_another_cluster_is_refused(cluster: LoadedCluster, tmp_path: Path) -> None:
    controllers = ",".join(f"{HOST}:{node.controller_port}" for node in cluster.nodes.values())
    stranger = PylogdBroker(tmp_path / "stranger", 9, controllers)
    config = str(stranger.write_properties())
    subprocess.run([stranger.command()[0], "format", "--config", config], check=True, capture_output=True, timeout=60)
    stranger.launch()
    assert stranger.process is not None
    assert stranger.process.wait(60) == 1
    assert "cluster" in stranger.log_tail()
    assert len(cluster.admin.list_topics(timeout=10).brokers) == 3
