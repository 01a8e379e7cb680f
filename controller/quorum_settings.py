"""How this node takes part in the metadata quorum: from configuration to the core's settings, and its peers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from pylogd.controller.raft.settings import RaftSettings, Timeouts
from pylogd.controller.raft.voters import Node, ReplicaKey, VoterSet
from pylogd.metadata.registrations import Endpoint
from pylogd.rpc.peer import PeerError


class QuorumPeer(Protocol):
    """A connection to another node: one answer, or one failure, for every request."""

    def send(
        self, request: Any, handler: Callable[[Any, PeerError | None], None], *, timeout_s: float | None = None
    ) -> None: ...

    def close(self) -> None: ...


REFUSALS_APART_MS = 100
#: host, port -> connection, which opens itself when it is used
Connect = Callable[[str, int], QuorumPeer]


class QuorumSettings:
    """The `controller.quorum.*` configuration. `voters` are the static ones, `bootstrap` the servers to ask otherwise;
    a quorum of one needs neither."""

    __slots__ = ("auto_join", "bootstrap", "can_vote", "cluster_id", "fetch_bytes_max", "fetch_snapshot_bytes_max",
                 "listener", "timeouts", "voters")  # fmt: skip

    def __init__(
        self,
        *,
        cluster_id: str = "",
        listener: str = "CONTROLLER",
        voters: Mapping[int, tuple[str, int]] | None = None,
        bootstrap: Sequence[tuple[str, int]] = (),
        can_vote: bool = True,
        auto_join: bool = False,
        timeouts: Timeouts | None = None,
        fetch_bytes_max: int = 1 << 20,
        fetch_snapshot_bytes_max: int = 1 << 20,
    ) -> None:
        self.cluster_id = cluster_id
        self.listener = listener
        self.voters = voters or {}
        self.bootstrap = bootstrap
        self.can_vote = can_vote
        self.auto_join = auto_join
        self.timeouts = timeouts or Timeouts()
        self.fetch_bytes_max = fetch_bytes_max
        self.fetch_snapshot_bytes_max = fetch_snapshot_bytes_max

    def for_replica(self, node_id: int, directory_id: bytes, endpoints: Sequence[Endpoint]) -> RaftSettings:
        own = {(e.host, e.port) for e in endpoints}
        others = [address for address in self.bootstrap if tuple(address) not in own]
        return RaftSettings(
            ReplicaKey(node_id, directory_id),
            cluster_id=self.cluster_id,
            listener=self.listener,
            endpoints={e.name: (e.host, e.port) for e in endpoints},
            static_voters=VoterSet.static(self.listener, self.voters) if self.voters else None,
            bootstrap=[Node(-2 - at, host, port) for at, (host, port) in enumerate(others)],
            can_vote=self.can_vote,
            auto_join=self.auto_join,
            timeouts=self.timeouts,
            fetch_bytes_max=self.fetch_bytes_max,
            fetch_snapshot_bytes_max=self.fetch_snapshot_bytes_max,
        )


class LeaderEvidence:
    """Whether the leader's process has gone, from what its connection shows: it broke, and two dials at least 100 ms
    apart were refused since. Silence is no evidence: it may be the network."""

    __slots__ = ("_broken", "_refused_ms")

    def __init__(self) -> None:
        self._broken = False
        self._refused_ms: int | None = None

    def answered(self) -> None:
        self._broken = False
        self._refused_ms = None

    def failed(self, refused: bool, had_answered: bool, now_ms: int) -> bool:
        """A request to the leader failed; True when that completes the evidence."""
        if not refused:
            self._broken, self._refused_ms = had_answered, None
            return False
        if self._refused_ms is None:
            self._refused_ms = now_ms
        if not self._broken or now_ms - self._refused_ms < REFUSALS_APART_MS:
            return False
        self.answered()
        return True


class Peers:
    """Connections by address; one that is not used any more (a voter moved) is closed with the others at the end."""

    def __init__(self, connect: Connect | None) -> None:
        self._connect = connect
        self._by_address: dict[tuple[str, int], QuorumPeer] = {}

    def get(self, node: Node) -> QuorumPeer | None:
        if self._connect is None:
            return None
        address = (node.host, node.port)
        peer = self._by_address.get(address)
        if peer is None:
            peer = self._by_address[address] = self._connect(*address)
        return peer

    def close(self) -> None:
        peers, self._by_address = self._by_address, {}
        self._connect = None
        for peer in peers.values():
            peer.close()
