"""What a node knows about its quorum: who leads, who votes, what is committed."""

from __future__ import annotations

from pylogd.controller.quorum.metadata_log import MetadataLog
from pylogd.controller.raft.leader import Leader, ReplicaStatus
from pylogd.controller.raft.raft_node import RaftNode
from pylogd.controller.raft.roles import Follower
from pylogd.protocol.messages.control_records import VotersRecord
from pylogd.runtime.clock import Clock


class QuorumView:
    """Reads from the core and its log; changes nothing."""

    def __init__(self, node: RaftNode, log: MetadataLog, clock: Clock) -> None:
        self.node = node
        self.log = log
        self._clock = clock

    @property
    def node_id(self) -> int:
        return self.node.local.id

    @property
    def epoch(self) -> int:
        return self.node.epoch

    @property
    def leader_id(self) -> int | None:
        return self.node.leader_id

    @property
    def leader_address(self) -> tuple[str, int] | None:
        """Where the active controller is reached by other nodes."""
        return self.node.role.leader_endpoints.get(self.node.settings.listener)

    @property
    def is_only_voter(self) -> bool:
        return self.node.voters.is_only_voter(self.node.local)

    @property
    def is_voter(self) -> bool:
        """With this directory: the id alone may be that of a voter whose disk was lost."""
        return self.node.voters.is_voter(self.node.local)

    @property
    def kraft_version(self) -> int:
        return self.node.membership.kraft_version

    @property
    def voters(self) -> VotersRecord | None:
        """The voters as a VotersRecord; None when they are static."""
        last = self.node.membership.voter_sets.last
        return None if last is None else last[1].to_record()

    @property
    def voter_ids(self) -> tuple[int, ...]:
        return tuple(self.node.voters.ids)

    @property
    def committed_offset(self) -> int:
        """The first offset that is not known to be committed."""
        return self.node.high_watermark or 0

    @property
    def end_offset(self) -> int:
        """The offset the next record gets."""
        return self.log.end_offset

    @property
    def follows(self) -> bool:
        """Whether a leader answers us."""
        return isinstance(self.node.role, Follower) and self.node.role.has_fetched

    def replicas(self) -> tuple[list[ReplicaStatus], list[ReplicaStatus]] | None:
        """Voters and observers; None unless this node leads."""
        role = self.node.role
        if not isinstance(role, Leader):
            return None
        return role.statuses(self.end_offset, self._clock.monotonic_ms(), self._clock.now_ms())
