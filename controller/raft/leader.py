"""The leader's view of its epoch: how far every replica has fetched, what that commits, whether a majority is there.

A follower's fetch offset says what it has on stable storage; the leader's own entry is what it has flushed itself. The
high watermark is the largest offset a majority of the voters has reached, once that is beyond the start of this epoch:
records of earlier epochs are committed only together with one of this epoch, since until then a later leader could
still replace them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pylogd.controller.raft.connections import NEVER_MS
from pylogd.controller.raft.majority import UNKNOWN_OFFSET, majority_offset, majority_size
from pylogd.controller.raft.roles import Role
from pylogd.controller.raft.voters import Endpoints, ReplicaKey, VoterNode, VoterSet
from pylogd.protocol.uuids import ZERO

if TYPE_CHECKING:
    from pylogd.controller.raft.inbound import Inbound
    from pylogd.protocol.messages.add_raft_voter import AddRaftVoterRequest
    from pylogd.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest

    VoterChange = Inbound[AddRaftVoterRequest] | Inbound[RemoveRaftVoterRequest]

OBSERVER_SESSION_MS = 300_000
CAUGHT_UP_MS_MAX = 3_600_000
NEVER_FETCHED_MS = -1


class ReplicaProgress:
    """One replica as its fetches show it; times are of this process's clock, NEVER_FETCHED_MS before the first."""

    __slots__ = ("caught_up_ms", "end_offset", "endpoints", "fetched_ms", "key", "leader_end_offset")

    def __init__(self, key: ReplicaKey, endpoints: Endpoints) -> None:
        self.key = key
        self.endpoints = endpoints
        self.end_offset = UNKNOWN_OFFSET
        self.fetched_ms = NEVER_FETCHED_MS
        self.caught_up_ms = NEVER_FETCHED_MS
        self.leader_end_offset = UNKNOWN_OFFSET

    def matches(self, key: ReplicaKey) -> bool:
        return self.key.id == key.id and self.key.directory_id in (ZERO, key.directory_id)

    def fetched(self, offset: int, leader_end_offset: int, now_ms: int) -> None:
        if offset >= leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif 0 < self.leader_end_offset <= offset:
            # It has reached what was our end at its last fetch.
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.leader_end_offset = leader_end_offset
        self.fetched_ms = max(self.fetched_ms, now_ms)
        self.end_offset = offset


class ReplicaStatus(NamedTuple):
    """A replica as DescribeQuorum shows it; times are on the wall, -1 if there was none."""

    key: ReplicaKey
    endpoints: Endpoints
    end_offset: int
    fetched_ms: int
    caught_up_ms: int


class PendingChange:
    """The one change of the voters under way, and who waits for its answer. An added voter is asked for its versions
    first; then there is an offset to be committed."""

    __slots__ = ("adding", "answer_at_commit", "answered", "deadline_ms", "inbound", "offset")

    def __init__(
        self,
        inbound: VoterChange,
        deadline_ms: int,
        adding: VoterNode | None,
        offset: int | None,
        answer_at_commit: bool = True,
    ) -> None:
        self.inbound = inbound
        self.deadline_ms = deadline_ms
        self.adding = adding
        self.offset = offset
        self.answer_at_commit = answer_at_commit
        self.answered = False


class Leader(Role):
    name = "leader"

    def __init__(
        self,
        epoch: int,
        local: VoterNode,
        voters: VoterSet,
        epoch_start_offset: int,
        granting: list[int],
        fetch_timeout_ms: int,
        now_ms: int,
    ) -> None:
        super().__init__(epoch, local.key.id, None, local.endpoints)
        self.local = local
        self.epoch_start_offset = epoch_start_offset
        self.granting = granting
        self.high_watermark: int | None = None
        self.voters: dict[int, ReplicaProgress] = {v.key.id: ReplicaProgress(v.key, v.endpoints) for v in voters}
        self.observers: dict[ReplicaKey, ReplicaProgress] = {}
        self.pending: PendingChange | None = None
        self.resign_requested = False
        #: Voters as they describe themselves while kraft.version 0 has no place for it in the log.
        self.volatile_voters: VoterSet | None = None
        self._check_quorum_ms = fetch_timeout_ms * 3 // 2
        self._check_quorum_at_ms = now_ms + self._check_quorum_ms
        self._fetched_voters: set[int] = set()
        self._begin_quorum_ms = fetch_timeout_ms // 2
        self.begin_quorum_at_ms = now_ms

    def grants(self, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
        return False

    # -- is a majority there?

    @property
    def check_quorum_at_ms(self) -> int:
        """When to resign unless a majority of the voters fetches until then."""
        return NEVER_MS if len(self.voters) == 1 else self._check_quorum_at_ms

    def heard_from(self, key: ReplicaKey, now_ms: int) -> None:
        voter = self.voters.get(key.id)
        if voter is not None and voter.matches(key):
            self._fetched_voters.add(key.id)
        needed = majority_size(len(self.voters)) - (self.local.key.id in self.voters)
        if len(self._fetched_voters) >= needed:
            self._fetched_voters.clear()
            self._check_quorum_at_ms = now_ms + self._check_quorum_ms

    def voters_to_tell(self, now_ms: int) -> list[ReplicaKey]:
        """Voters that may not know who leads, as they do not fetch."""
        return [
            voter.key
            for voter in self.voters.values()
            if voter.key.id != self.local.key.id
            and (voter.fetched_ms == NEVER_FETCHED_MS or now_ms - voter.fetched_ms >= self._begin_quorum_ms)
        ]

    def told_voters(self, now_ms: int) -> None:
        self.begin_quorum_at_ms = now_ms + self._begin_quorum_ms

    # -- progress

    def _progress(self, key: ReplicaKey) -> ReplicaProgress:
        voter = self.voters.get(key.id)
        if voter is not None and voter.matches(key):
            return voter
        return self.observers.setdefault(key, ReplicaProgress(key, {}))

    def flushed(self, end_offset: int, voters: VoterSet) -> bool:
        """Our own log is durable up to `end_offset`, and these are the voters now; True when that commits more."""
        progress = self._progress(self.local.key)
        progress.end_offset = max(progress.end_offset, end_offset)
        self._take_over(voters)
        return self._advance()

    def fetched(self, key: ReplicaKey, offset: int, end_offset: int, now_ms: int) -> bool:
        """A replica asked for records from `offset` on, which fits our log; True when that commits more."""
        if key.id < 0:
            return False
        progress = self._progress(key)
        progress.fetched(offset, end_offset, now_ms)
        self.heard_from(key, now_ms)
        return self.voters.get(key.id) is progress and self._advance()

    def _take_over(self, voters: VoterSet) -> None:
        """Voters that became observers keep their progress, and the other way round."""
        if voters.keys == [progress.key for progress in self.voters.values()]:
            for voter in voters:
                self.voters[voter.key.id].endpoints = voter.endpoints
            return
        former = dict(self.voters)
        self.voters = {}
        for voter in voters:
            progress = former.get(voter.key.id)
            if progress is not None and progress.matches(voter.key):
                del former[voter.key.id]
            else:
                progress = self.observers.get(voter.key) or ReplicaProgress(voter.key, voter.endpoints)
            self.observers.pop(voter.key, None)
            progress.key, progress.endpoints = voter.key, voter.endpoints
            self.voters[voter.key.id] = progress
        for progress in former.values():
            progress.endpoints = {}
            self.observers.setdefault(progress.key, progress)
        self._fetched_voters.intersection_update(self.voters)

    def _advance(self) -> bool:
        reached = majority_offset(voter.end_offset for voter in self.voters.values())
        if reached <= self.epoch_start_offset:
            return False
        if self.high_watermark is not None and reached <= self.high_watermark:
            return False
        self.high_watermark = reached
        return True

    def is_caught_up(self, key: ReplicaKey, now_ms: int) -> bool:
        """Whether an observer may become a voter without holding the others up."""
        progress = self.observers.get(key)
        return (
            progress is not None
            and progress.caught_up_ms != NEVER_FETCHED_MS
            and progress.fetched_ms > now_ms - CAUGHT_UP_MS_MAX
        )

    def successors(self) -> list[ReplicaKey]:
        """The other voters, the one with the longest log first."""
        others = [voter for voter in self.voters.values() if voter.key != self.local.key]
        others = [voter for voter in others if not voter.matches(self.local.key)]
        return [voter.key for voter in sorted(others, key=lambda v: (-v.end_offset, v.key.id))]

    def forget_inactive(self, now_ms: int) -> None:
        for key, progress in list(self.observers.items()):
            if now_ms - progress.fetched_ms >= OBSERVER_SESSION_MS and key != self.local.key:
                del self.observers[key]

    def statuses(self, end_offset: int, now_ms: int, wall_ms: int) -> tuple[list[ReplicaStatus], list[ReplicaStatus]]:
        """Voters and observers; our own log ends at `end_offset`, and `now_ms` is `wall_ms` on the wall."""
        self.forget_inactive(now_ms)

        def status(progress: ReplicaProgress) -> ReplicaStatus:
            key, endpoints = progress.key, progress.endpoints
            if key.id == self.local.key.id:
                return ReplicaStatus(key, endpoints, end_offset, wall_ms, wall_ms)
            times = (progress.fetched_ms, progress.caught_up_ms)
            fetched_ms, caught_up_ms = (-1 if at_ms < 0 else wall_ms - (now_ms - at_ms) for at_ms in times)
            return ReplicaStatus(key, endpoints, progress.end_offset, fetched_ms, caught_up_ms)

        return [status(each) for each in self.voters.values()], [status(each) for each in self.observers.values()]
