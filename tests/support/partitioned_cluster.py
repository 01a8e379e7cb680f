"""Three brokers whose traffic among themselves goes through links that a test can cut; clients reach them directly."""

from __future__ import annotations

from pathlib import Path

from support.broker import Pylogd
from support.daemon import HOST
from support.links import Gate, Link, Links
from support.loaded_cluster import LoadedCluster
from support.ports import free_ports

#: Followers fetch and coordinators talk over the first, the quorum and heartbeats go over the second.
CHANNELS = ("REPLICATION", "CONTROLLER")


class GatedPylogd(Pylogd):
    """A node that others reach through gates, which are open while it lives."""

    def __init__(self, directory: Path, properties: dict[str, str] | None = None, node_id: int = 1) -> None:
        super().__init__(directory, properties, node_id)
        self.gates: dict[str, Gate] = {}

    def stand_behind(self, links: Links) -> None:
        (replication_port,) = free_ports(1)
        for channel, port in zip(CHANNELS, (replication_port, self.controller_port)):
            self.gates[channel] = Gate(links, channel, self.node_id, port)
        client = f"PLAINTEXT://{HOST}:{self.port}"
        behind = [f"{gate.channel}://{HOST}:{gate.target}" for gate in self.gates.values()]
        before = [f"{gate.channel}://{HOST}:{gate.port}" for gate in self.gates.values()]
        self.extra |= {
            "listeners": ",".join([client, *behind]),
            "advertised.listeners": ",".join([client, *before]),
            "inter.broker.listener.name": "REPLICATION",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,REPLICATION:PLAINTEXT,CONTROLLER:PLAINTEXT",
        }

    def launch(self) -> None:
        super().launch()
        for gate in self.gates.values():
            gate.open()

    def kill(self) -> None:
        super().kill()
        for gate in self.gates.values():
            gate.close()

    def terminate(self) -> int:
        code = super().terminate()
        for gate in self.gates.values():
            gate.close()
        return code


class PartitionedCluster(LoadedCluster):
    node_class = GatedPylogd
    nodes: dict[int, GatedPylogd]  # type: ignore[assignment]

    def __init__(self, directory: Path, count: int = 3, extra: dict[str, str] | None = None) -> None:
        super().__init__(directory, count, extra)
        self.links = Links(lambda: {node.node_id: node.pid for node in self.nodes.values() if node.running})
        for node in self.nodes.values():
            node.stand_behind(self.links)
        voters = ",".join(f"{HOST}:{node.gates['CONTROLLER'].port}" for node in self.nodes.values())
        for node in self.nodes.values():
            node.extra["controller.quorum.bootstrap.servers"] = voters

    def links_of(
        self, node_id: int, channels: tuple[str, ...] = CHANNELS, *, heard: bool = True, hearing: bool = True
    ) -> list[Link]:
        """What goes from a node to the others (it is heard) and from them to it (it is hearing)."""
        others = [other for other in self.nodes if other != node_id]
        away = [(channel, node_id, other) for channel in channels for other in others] if heard else []
        home = [(channel, other, node_id) for channel in channels for other in others] if hearing else []
        return [*away, *home]

    def kill(self) -> None:
        super().kill()
        self.links.stop()
