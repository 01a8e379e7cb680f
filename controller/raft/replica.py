"""One replica of the metadata quorum: its role, its log, and the ways from one role to the next.

What a replica does with requests, responses and time is in `requests.py`, `responses.py`, `fetching.py`, `changes.py`
and `raft_node.py`; they all act on a `Replica`, and only here one role becomes another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pylogd.controller.raft import changes, fetching, raft_messages
from pylogd.controller.raft.connections import NEVER_MS, Connections
from pylogd.controller.raft.leader import Leader
from pylogd.controller.raft.log_view import OffsetAndEpoch, RaftLog
from pylogd.controller.raft.majority import Election
from pylogd.controller.raft.output import HardState, Output, RaftError, Reply, Send
from pylogd.controller.raft.roles import Candidate, Follower, Prospective, Resigned, Role, Unattached
from pylogd.controller.raft.settings import RaftSettings
from pylogd.controller.raft.voters import NO_ENDPOINTS, Endpoints, Membership, Node, ReplicaKey, VoterNode, VoterSet
from pylogd.protocol import batch as batches
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.schema import Message

if TYPE_CHECKING:
    from random import Random


class Replica:
    """`hard_state` is what the last run left behind; the log is durable up to `flushed_offset`."""

    def __init__(
        self,
        settings: RaftSettings,
        log: RaftLog,
        hard_state: HardState | None,
        rng: Random,
        *,
        flushed_offset: int = 0,
        wall_ms: Callable[[int], int] = lambda now_ms: now_ms,
    ) -> None:
        self.settings = settings
        self.timeouts = settings.timeouts
        self.local = settings.local
        self.log = log
        self.membership = Membership(settings.static_voters)
        self.high_watermark: int | None = None
        self.role: Role = Unattached(0, None, None)
        self.shutting_down = False
        self.rng = rng
        #: from the time of an event to what the clock on the wall showed
        self.wall_ms = wall_ms
        bootstrap = settings.bootstrap
        if not bootstrap:
            nodes = (settings.static_voters.node(id_, settings.listener) for id_ in settings.static_voters.ids)
            bootstrap = [node for node in nodes if node is not None and node.id != self.local.id]
        timeouts = settings.timeouts
        self.connections = Connections(bootstrap, timeouts.retry_backoff_ms, timeouts.request_ms, rng)
        self.fetches = fetching.WaitingFetches()
        self._persisted = hard_state
        self._flushed_offset = flushed_offset
        self._flush_asked = -1
        self._truncations = 0
        self._out = Output()
        self._announced: tuple[str, int, int | None] | None = None

    # -- what others may know

    @property
    def epoch(self) -> int:
        return self.role.epoch

    @property
    def leader_id(self) -> int | None:
        return self.role.leader_id

    @property
    def is_leader(self) -> bool:
        return isinstance(self.role, Leader)

    @property
    def voters(self) -> VoterSet:
        return self.membership.voters

    @property
    def is_voter(self) -> bool:
        return self.settings.can_vote and self.voters.is_voter(self.local)

    @property
    def may_run(self) -> bool:
        """Whether it may run for office: as a voter, or as one whose removal may not be committed. Such a replica may
        hold the only copy of its removal; nobody with a shorter log would get its vote."""
        if self.is_voter:
            return True
        last, before = self.membership.voter_sets.last, self.membership.voter_sets.before_last
        if not self.settings.can_vote or last is None or before is None:
            return False
        pending = self.high_watermark is None or self.high_watermark <= last[0]
        return pending and before.is_voter(self.local)

    @property
    def end(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self.log.end_offset, self.log.last_epoch)

    @property
    def leader_info(self) -> raft_messages.LeaderInfo:
        return raft_messages.LeaderInfo(self.role.epoch, self.role.leader_id, self.role.leader_endpoints)

    @property
    def local_voter(self) -> VoterNode:
        return VoterNode(self.local, self.settings.endpoints, self.settings.kraft_versions)

    @property
    def shutdown_complete(self) -> bool:
        """Whether a replica that is shutting down is not needed any more."""
        if not self.may_run or self.voters.is_only_voter(self.local):
            return True
        return self.role.leader_id is not None and self.role.leader_id != self.local.id

    def leader_error(self, epoch: int) -> ErrorCode | None:
        """Why a request that only the leader of `epoch` may answer is refused."""
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > self.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.BROKER_NOT_AVAILABLE if self.shutting_down else None

    # -- the log

    def load_membership(self) -> None:
        self.membership.clear()
        offset = self.log.start_offset
        snapshot = self.log.latest_snapshot
        if snapshot is not None:
            size = self.log.snapshot_size(snapshot) or 0
            self.membership.replay(self.log.read_snapshot(snapshot, 0, size), at=snapshot.offset - 1)
            offset = max(offset, snapshot.offset)
        while offset < self.log.end_offset:
            data = self.log.read(offset, 1 << 20)
            self.membership.replay(data)
            offset = _end_of(data)

    def write(self, batch: bytearray) -> None:
        """Appends as the leader."""
        self.log.append(batch, self.role.epoch)
        self._wrote(batch)

    def write_fetched(self, records: memoryview) -> None:
        """Appends as a follower."""
        if len(records):
            self.log.append_fetched(records)
            self._wrote(records)

    def _wrote(self, data: bytearray | memoryview) -> None:
        self.membership.replay(data)
        self.fetches.dirty = True
        if not self.settings.can_vote:
            self._flushed_offset = self.log.end_offset

    def truncate(self, offset: int) -> None:
        if self.high_watermark is not None and offset < self.high_watermark:
            raise RaftError(f"asked to truncate to {offset}, below the high watermark {self.high_watermark}")
        self.log.truncate_to(offset)
        self.membership.truncate_from(offset)
        self._truncated()

    def install_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        self.log.install_snapshot(snapshot_id)
        self._truncated()
        self._flushed_offset = self.log.end_offset
        self.load_membership()
        self.advance_high_watermark(snapshot_id.offset)

    def _truncated(self) -> None:
        self._truncations += 1
        self._flush_asked = -1
        self._flushed_offset = min(self._flushed_offset, self.log.end_offset)

    @property
    def durable(self) -> bool:
        """Whether all of the log is on stable storage."""
        return self._flushed_offset >= self.log.end_offset

    def advance_high_watermark(self, offset: int) -> None:
        """A follower's comes from its leader; it never goes back."""
        offset = min(offset, self.log.end_offset)
        if self.high_watermark is None or offset > self.high_watermark:
            self.high_watermark = self._out.high_watermark = offset

    def committed_more(self, leader: Leader) -> None:
        """The leader's high watermark moved."""
        if leader.high_watermark is not None:
            self.advance_high_watermark(leader.high_watermark)
        self.fetches.dirty = True
        changes.committed(self, leader)

    def snapshot_created(self, snapshot_id: OffsetAndEpoch) -> None:
        """The log keeps a new snapshot, so older voter sets are not asked for any more."""
        self.membership.truncate_before(snapshot_id.offset - 1)

    # -- sending

    def reply(self, token: Any, response: Message) -> None:
        self._out.replies.append(Reply(token, response))

    def send(self, node: Node | None, request: Message | Callable[[], Message], now_ms: int) -> int:
        """Sends if the peer is ready; returns when to look at it again."""
        if node is None:
            return NEVER_MS
        if not self.connections.ready(node.id, now_ms):
            return self.connections.ready_at_ms(node.id, now_ms)
        correlation_id = self.connections.sent(node.id, now_ms)
        self._out.sends.append(Send(correlation_id, node, request() if callable(request) else request))
        return self.connections.ready_at_ms(node.id, now_ms)

    # -- transitions

    def election_deadline_ms(self, now_ms: int) -> int:
        """One to two election time-outs from now, so that not all run for office at once."""
        election_ms = self.timeouts.election_ms
        return now_ms + election_ms + (self.rng.randrange(election_ms) if election_ms else 0)

    def _become(self, role: Role, now_ms: int) -> None:
        former, self.role = self.role, role
        if isinstance(former, Leader):
            changes.abandon(self, former)
            self.fetches.fail(self, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.connections.reset_all()

    def become_unattached(self, epoch: int, leader_id: int | None, now_ms: int) -> None:
        role = self.role
        if epoch < role.epoch or (epoch == role.epoch and not isinstance(role, Prospective)):
            raise RaftError(f"cannot become unattached in epoch {epoch} from {role}")
        if not self.may_run:
            deadline_ms = NEVER_MS
        elif isinstance(role, (Candidate, Unattached, Resigned)) or (
            isinstance(role, Prospective) and not role.election.lost
        ):
            # Hearing of a later epoch does not buy more time.
            deadline_ms = role.election_deadline_ms
        else:
            deadline_ms = self.election_deadline_ms(now_ms)
        if deadline_ms == NEVER_MS and self.may_run:
            deadline_ms = self.election_deadline_ms(now_ms)
        self._become(Unattached(epoch, leader_id, role.voted if epoch == role.epoch else None, deadline_ms), now_ms)

    def become_follower(self, epoch: int, leader_id: int, endpoints: Endpoints, now_ms: int) -> None:
        role = self.role
        if leader_id == self.local.id or epoch < role.epoch or (epoch == role.epoch and isinstance(role, Leader)):
            raise RaftError(f"cannot follow {leader_id} in epoch {epoch} from {role}")
        if not endpoints:
            # Somebody leads whom we cannot reach yet; the bootstrap servers may tell where it is.
            if epoch > role.epoch:
                self.become_unattached(epoch, leader_id, now_ms)
            return
        voted = role.voted if epoch == role.epoch else None
        self._become(Follower(epoch, leader_id, endpoints, voted, self.timeouts.fetch_ms, now_ms), now_ms)

    def become_prospective(self, now_ms: int) -> None:
        role = self.role
        election = Election(self.voters.ids, self.local.id)
        deadline_ms = self.election_deadline_ms(now_ms)
        prospective = Prospective(role.epoch, role.leader_id, role.voted, role.leader_endpoints, election, deadline_ms)
        self._become(prospective, now_ms)
        if election.won:
            self.become_candidate(now_ms)

    def become_candidate(self, now_ms: int) -> None:
        election = Election(self.voters.ids, self.local.id)
        candidate = Candidate(self.role.epoch + 1, self.local, election, self.election_deadline_ms(now_ms))
        self._become(candidate, now_ms)
        if election.won:
            self.become_leader(candidate, now_ms)

    def become_leader(self, candidate: Candidate, now_ms: int) -> None:
        granting = candidate.election.granting
        fetch_ms = self.timeouts.fetch_ms
        leader = Leader(candidate.epoch, self.local_voter, self.voters, self.log.end_offset, granting, fetch_ms, now_ms)
        self._become(leader, now_ms)
        changes.open_epoch(self, leader, now_ms)

    def become_resigned(self, leader: Leader, now_ms: int) -> None:
        others = [id_ for id_ in self.voters.ids if id_ != self.local.id]
        deadline_ms, successors = self.election_deadline_ms(now_ms), leader.successors()
        self._become(
            Resigned(leader.epoch, self.local.id, self.settings.endpoints, others, successors, deadline_ms), now_ms
        )

    def vote_for(self, candidate: ReplicaKey, now_ms: int) -> None:
        """Gives the vote of this epoch; `grants` has said yes."""
        role = self.role
        if role.voted is not None or not isinstance(role, (Unattached, Prospective)):
            return
        role.voted = candidate
        role.election_deadline_ms = self.election_deadline_ms(now_ms)

    def election_lost(self, prospective: Prospective, now_ms: int) -> None:
        """Back to where it came from."""
        epoch, leader_id = prospective.epoch, prospective.leader_id
        if leader_id is not None and leader_id != self.local.id and prospective.leader_endpoints:
            self.become_follower(epoch, leader_id, prospective.leader_endpoints, now_ms)
        else:
            self.become_unattached(epoch, leader_id, now_ms)

    def learn(self, leader_id: int | None, epoch: int, endpoints: Endpoints, now_ms: int) -> None:
        """A peer says who leads in its epoch, which is not below ours."""
        role = self.role
        if leader_id == self.local.id and not isinstance(role, Leader):
            # We led with a disk that is gone, or have resigned since: nobody leads that epoch any more.
            leader_id, endpoints = None, NO_ENDPOINTS
        elif epoch == role.epoch and None not in (leader_id, role.leader_id) and leader_id != role.leader_id:
            raise RaftError(f"a peer says {leader_id} leads epoch {epoch}, of which we know {role.leader_id}")
        if leader_id is not None and not endpoints:
            endpoints = self.voters.endpoints(leader_id)
        if epoch > role.epoch:
            if leader_id is not None:
                self.become_follower(epoch, leader_id, endpoints, now_ms)
            else:
                self.become_unattached(epoch, None, now_ms)
        elif leader_id is not None and leader_id != self.local.id:
            reachable = len(endpoints) > len(role.leader_endpoints)
            if role.leader_id is None or reachable:
                self.become_follower(epoch, leader_id, endpoints, now_ms)


def _end_of(data: bytes) -> int:
    """The offset after the last whole batch in `data`."""
    end = -1
    for _, header in batches.iter_headers(memoryview(data)):
        end = header.next_offset
    if end < 0:
        raise RaftError("the metadata log has no batch where one must be")
    return end
