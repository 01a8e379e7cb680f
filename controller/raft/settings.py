"""The quorum's timings and limits (`controller.quorum.*`), and who this replica is."""

from __future__ import annotations

from pylogd.controller.raft.voters import Endpoints, Node, ReplicaKey, VoterSet


class Timeouts:
    """Kafka's defaults."""

    __slots__ = (
        "election_backoff_ms_max",
        "election_ms",
        "fetch_ms",
        "fetch_wait_ms_max",
        "request_ms",
        "retry_backoff_ms",
    )

    def __init__(
        self,
        election_ms: int = 1000,
        fetch_ms: int = 2000,
        election_backoff_ms_max: int = 1000,
        request_ms: int = 2000,
        retry_backoff_ms: int = 20,
        fetch_wait_ms_max: int = 500,
    ) -> None:
        self.election_ms = election_ms
        self.fetch_ms = fetch_ms
        self.election_backoff_ms_max = election_backoff_ms_max
        self.request_ms = request_ms
        self.retry_backoff_ms = retry_backoff_ms
        self.fetch_wait_ms_max = fetch_wait_ms_max


class RaftSettings:
    """`can_vote` is false for a broker without the controller role: it only ever observes, and its log need not be
    durable. `listener` is the name under which controllers reach each other."""

    __slots__ = (
        "auto_join",
        "bootstrap",
        "can_vote",
        "cluster_id",
        "endpoints",
        "fetch_bytes_max",
        "fetch_snapshot_bytes_max",
        "kraft_versions",
        "listener",
        "local",
        "static_voters",
        "timeouts",
    )

    def __init__(
        self,
        local: ReplicaKey,
        *,
        cluster_id: str,
        listener: str,
        endpoints: Endpoints,
        static_voters: VoterSet | None = None,
        bootstrap: list[Node] | None = None,
        can_vote: bool = True,
        auto_join: bool = False,
        timeouts: Timeouts | None = None,
        fetch_bytes_max: int = 1 << 20,
        fetch_snapshot_bytes_max: int = 1 << 20,
        kraft_versions: tuple[int, int] = (0, 1),
    ) -> None:
        self.local = local
        self.cluster_id = cluster_id
        self.listener = listener
        self.endpoints = endpoints
        self.static_voters = static_voters or VoterSet()
        self.bootstrap = bootstrap or []
        self.can_vote = can_vote
        self.auto_join = auto_join
        self.timeouts = timeouts or Timeouts()
        self.fetch_bytes_max = fetch_bytes_max
        self.fetch_snapshot_bytes_max = fetch_snapshot_bytes_max
        self.kraft_versions = kraft_versions
