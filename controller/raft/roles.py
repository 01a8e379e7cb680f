"""What a replica is at a moment: one class for each role but the leader, which has its own file.

The roles of a voter and how they follow each other:

    unattached   knows an epoch, no leader to follow; asks the bootstrap servers, runs for office when time is up
    prospective  asks in its current epoch whether it would be elected (pre-vote), so that a replica that lost sight of
                 the leader does not depose it by raising the epoch
    candidate    has raised the epoch, voted for itself and asks for votes
    leader       see leader.py
    follower     fetches from the leader; becomes prospective when it hears nothing from it
    resigned     was leader of this epoch and will not be again in it; tells the voters

An observer, which has no vote, is unattached or a follower and never runs for office.
"""

from __future__ import annotations

from pylogd.controller.raft.connections import NEVER_MS
from pylogd.controller.raft.log_view import OffsetAndEpoch
from pylogd.controller.raft.majority import Election
from pylogd.controller.raft.voters import NO_ENDPOINTS, Endpoints, Node, ReplicaKey
from pylogd.protocol.uuids import ZERO


class Role:
    """What every role knows: the epoch, its leader if any, and the vote that was given in it."""

    name = ""

    def __init__(
        self,
        epoch: int,
        leader_id: int | None = None,
        voted: ReplicaKey | None = None,
        leader_endpoints: Endpoints = NO_ENDPOINTS,
    ) -> None:
        self.epoch = epoch
        self.leader_id = leader_id
        self.voted = voted
        self.leader_endpoints = leader_endpoints

    def grants(self, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
        """Whether `candidate`, whose log is at least as long as ours if `up_to_date`, gets the vote it asks for."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{self.name}(epoch={self.epoch}, leader={self.leader_id}, voted={self.voted})"


def _grants_without_leader(role: Role, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
    if pre_vote:
        return up_to_date
    if role.voted is not None:
        # The same candidate may ask again: our first answer may have been lost. A log that has become shorter meanwhile
        # means that it lost what it had not flushed yet, which may be committed: the vote was for another log.
        same = role.voted.id == candidate.id and role.voted.directory_id in (ZERO, candidate.directory_id)
        return same and up_to_date
    return role.leader_id is None and up_to_date


class Unattached(Role):
    name = "unattached"

    def __init__(
        self, epoch: int, leader_id: int | None, voted: ReplicaKey | None, election_deadline_ms: int = NEVER_MS
    ) -> None:
        super().__init__(epoch, leader_id, voted)
        self.election_deadline_ms = election_deadline_ms

    def grants(self, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
        return _grants_without_leader(self, candidate, up_to_date, pre_vote)


class Nominee(Role):
    """A replica that asks for votes, real or hypothetical."""

    pre_vote = False
    election: Election
    election_deadline_ms: int


class Prospective(Nominee):
    name = "prospective"
    pre_vote = True

    def __init__(
        self,
        epoch: int,
        leader_id: int | None,
        voted: ReplicaKey | None,
        leader_endpoints: Endpoints,
        election: Election,
        election_deadline_ms: int,
    ) -> None:
        super().__init__(epoch, leader_id, voted, leader_endpoints)
        self.election = election
        self.election_deadline_ms = election_deadline_ms

    def grants(self, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
        return _grants_without_leader(self, candidate, up_to_date, pre_vote)


class Candidate(Nominee):
    name = "candidate"

    def __init__(self, epoch: int, local: ReplicaKey, election: Election, election_deadline_ms: int) -> None:
        super().__init__(epoch, None, local)
        self.election = election
        self.election_deadline_ms = election_deadline_ms

    def grants(self, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
        # The vote of this epoch is our own.
        return pre_vote and up_to_date


#: How often within the fetch time-out an observer asks for its place among the voters.
JOIN_PARTS = 10


class Follower(Role):
    name = "follower"

    def __init__(
        self,
        epoch: int,
        leader_id: int,
        leader_endpoints: Endpoints,
        voted: ReplicaKey | None,
        fetch_timeout_ms: int,
        now_ms: int,
    ) -> None:
        super().__init__(epoch, leader_id, voted, leader_endpoints)
        self._fetch_timeout_ms = fetch_timeout_ms
        self.fetch_deadline_ms = now_ms + fetch_timeout_ms
        #: When to tell the leader about this replica's endpoints again.
        self.update_voter_at_ms = now_ms + fetch_timeout_ms
        #: When an observer that wants to be a voter may ask (again).
        self.join_at_ms = now_ms
        self.has_fetched = False
        #: There is evidence that its process has ended, and nothing was heard from it since.
        self.leader_gone = False
        self.has_updated_leader = False
        #: The snapshot that is being fetched, and how many bytes of it are here.
        self.snapshot: OffsetAndEpoch | None = None
        self.snapshot_bytes = 0

    def leader_node(self, listener: str) -> Node | None:
        address = self.leader_endpoints.get(listener)
        return None if address is None or self.leader_id is None else Node(self.leader_id, *address)

    def fetched(self, now_ms: int) -> None:
        """The leader answered."""
        self.fetch_deadline_ms = now_ms + self._fetch_timeout_ms
        self.has_fetched = True
        self.leader_gone = False

    def voter_updated(self, now_ms: int) -> None:
        self.update_voter_at_ms = now_ms + self._fetch_timeout_ms

    def asked_to_join(self, now_ms: int) -> None:
        self.join_at_ms = now_ms + self._fetch_timeout_ms

    def join_answered(self, now_ms: int) -> None:
        """The log will tell what came of it. Soon, because a quorum that waits for a voter can spare nobody."""
        self.join_at_ms = now_ms + self._fetch_timeout_ms // JOIN_PARTS

    def grants(self, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
        # A leader that answered us is alive as far as we know: nobody is helped to depose it.
        return pre_vote and up_to_date and (self.leader_gone or not self.has_fetched)


class Resigned(Role):
    name = "resigned"

    def __init__(
        self,
        epoch: int,
        local_id: int,
        local_endpoints: Endpoints,
        unacknowledged: list[int],
        successors: list[ReplicaKey],
        election_deadline_ms: int,
    ) -> None:
        super().__init__(epoch, local_id, None, local_endpoints)
        #: Voters that have not heard of it yet.
        self.unacknowledged = unacknowledged
        self.successors = successors
        self.election_deadline_ms = election_deadline_ms

    def grants(self, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
        return pre_vote and up_to_date
