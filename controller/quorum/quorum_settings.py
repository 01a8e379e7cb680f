"""How this node takes part in the metadata quorum: from configuration to the core's settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pylogd.controller.raft.settings import RaftSettings, Timeouts
from pylogd.controller.raft.voters import Node, ReplicaKey, VoterSet
from pylogd.metadata.registrations import Endpoint


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
