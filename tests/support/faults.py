"""What can happen to one node of a cluster, and its end: when a fault returns, the node is whole or on its way."""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections.abc import Callable

from support.partitioned_cluster import CHANNELS, PartitionedCluster

#: Longer than a broker's session, so that the controller takes its leaderships away.
LONG_S = (4.5, 6.0)
SHORT_S = (0.1, 1.0)


def kill(cluster: PartitionedCluster, victim: int, chance: random.Random) -> str:
    cluster.nodes[victim].kill()
    time.sleep(chance.uniform(0, 1))
    cluster.nodes[victim].start()
    return ""


def restart(cluster: PartitionedCluster, victim: int, chance: random.Random) -> str:
    cluster.nodes[victim].restart()
    return ""


def pause(cluster: PartitionedCluster, victim: int, chance: random.Random) -> str:
    long = chance.random() < 0.5
    cluster.signal(victim, signal.SIGSTOP)
    time.sleep(chance.uniform(*(LONG_S if long else SHORT_S)))
    cluster.signal(victim, signal.SIGCONT)
    return "long" if long else "short"


def wipe(cluster: PartitionedCluster, victim: int, chance: random.Random) -> str:
    """It comes back as a stranger with its old id, and gets everything from the others."""
    node = cluster.nodes[victim]
    node.kill()
    shutil.rmtree(node.data)
    time.sleep(chance.uniform(0, 1))
    node.start()
    return ""


def partition(cluster: PartitionedCluster, victim: int, chance: random.Random) -> str:
    """Silence between the victim and the others: of all their traffic or one kind of it, in one direction or both."""
    channels = chance.choice([CHANNELS, CHANNELS, CHANNELS[:1], CHANNELS[1:]])
    heard, hearing = chance.choice([(True, True), (True, True), (True, False), (False, True)])
    long = chance.random() < 0.6
    cluster.links.cut(*cluster.links_of(victim, channels, heard=heard, hearing=hearing))
    time.sleep(chance.uniform(*(LONG_S if long else SHORT_S)))
    cluster.links.mend()
    lost = "both ways" if heard and hearing else "what it says" if heard else "what it is told"
    return f"{'long' if long else 'short'}, {'+'.join(channels)}, {lost}"


def slow(cluster: PartitionedCluster, victim: int, chance: random.Random) -> str:
    delay_s = chance.choice([0.02, 0.1, 0.4])
    cluster.links.slow(delay_s, *cluster.links_of(victim))
    time.sleep(chance.uniform(1, 4))
    cluster.links.mend()
    return f"by {delay_s} s"


FAULTS: dict[str, Callable[[PartitionedCluster, int, random.Random], str]] = {
    "kill": kill,
    "pause": pause,
    "partition": partition,
    "restart": restart,
    "wipe": wipe,
    "slow": slow,
}


def strike(cluster: PartitionedCluster, kind: str, chance: random.Random) -> str:
    """One fault, at the active controller more often than its share."""
    victim = chance.choice([*cluster.nodes, cluster.active_controller()])
    detail = FAULTS[kind](cluster, victim, chance)
    return f"{kind} of {victim}" + (f" ({detail})" if detail else "")
