"""The state machine that a replica of the metadata quorum is: events in, an `Output` out.

Events come in as method calls with the time. Between events nothing happens. The roles are in `roles.py` and
`leader.py`, the transitions between them in `replica.py`, answers to requests in `requests.py`, what responses mean in
`responses.py`, changes of the voters in `changes.py`; here are the events and what each role does as time passes.
"""

from __future__ import annotations

from typing import Any

from pylogd.controller.raft import changes, fetching, raft_messages, requests, responses
from pylogd.controller.raft.connections import NEVER_MS
from pylogd.controller.raft.inbound import Inbound
from pylogd.controller.raft.leader import Leader
from pylogd.controller.raft.majority import Election
from pylogd.controller.raft.output import Flush, HardState, NotLeader, Output
from pylogd.controller.raft.replica import Replica
from pylogd.controller.raft.roles import Candidate, Follower, Nominee, Prospective, Resigned, Role, Unattached
from pylogd.controller.raft.voters import ReplicaKey
from pylogd.protocol.errors import ErrorCode

#: When the leader's process has gone, a voter gives each one before it this long to be elected.
_TURN_MS = 50


class RaftNode(Replica):
    """A replica with everything that moves it."""

    # -- events

    def start(self, now_ms: int) -> Output:
        """Takes up the state of the last run. Nobody starts as a leader: even the only voter takes a new epoch."""
        self.load_membership()
        self._become(self._first_role(now_ms), now_ms)
        if self.voters.is_only_voter(self.local) and not isinstance(self.role, Candidate):
            self.become_prospective(now_ms)
        elif isinstance(self.role, Candidate) and self.role.election.won:
            self.become_leader(self.role, now_ms)
        return self._finish(now_ms)

    def tick(self, now_ms: int) -> Output:
        """Time has passed."""
        return self._finish(now_ms)

    def request(self, token: Any, request: Any, version: int, listener: str, now_ms: int) -> Output:
        """A request that came in on `listener`; the answer carries `token`, now or later."""
        requests.handle(self, Inbound(token, request, version, listener), now_ms)
        return self._finish(now_ms)

    def response(self, node_id: int, correlation_id: int, response: Any, now_ms: int) -> Output:
        """The answer to a request. One that is not expected any more is dropped."""
        if self.connections.expects(node_id, correlation_id):
            handled = responses.handle(self, node_id, response, now_ms)
            self.connections.answered(node_id, correlation_id, handled, now_ms)
        return self._finish(now_ms)

    def failed(self, node_id: int, correlation_id: int, error: ErrorCode, now_ms: int) -> Output:
        """A request did not reach the peer, or no answer came back."""
        if self.connections.expects(node_id, correlation_id):
            if error is ErrorCode.UNSUPPORTED_VERSION and isinstance(self.role, Prospective):
                # The peer has never heard of pre-votes: then there must be none.
                self.become_candidate(now_ms)
            self.connections.answered(node_id, correlation_id, False, now_ms)
            changes.peer_failed(self, node_id)
        return self._finish(now_ms)

    def append(self, batch: bytearray, epoch: int, now_ms: int) -> Output:
        """Appends a batch of this leader, whose base offset is the end of the log."""
        if not isinstance(self.role, Leader) or self.role.epoch != epoch:
            raise NotLeader(f"not the leader of epoch {epoch}")
        self.write(batch)
        return self._finish(now_ms)

    def flushed(self, flush: Flush, now_ms: int) -> Output:
        """What this flush asked for is on stable storage."""
        if flush.generation == self._truncations:
            self._flushed_offset = max(self._flushed_offset, flush.end_offset)
        if self._flush_asked <= flush.end_offset or flush.generation != self._truncations:
            self._flush_asked = -1
        return self._finish(now_ms)

    def resign(self, now_ms: int) -> Output:
        """Gives the lead to somebody else."""
        if isinstance(self.role, Leader):
            self.role.resign_requested = True
        return self._finish(now_ms)

    def shutdown(self, now_ms: int) -> Output:
        """Hands over before leaving; see `shutdown_complete`."""
        self.shutting_down = True
        return self._finish(now_ms)

    def leader_unreachable(self, leader_id: int, now_ms: int) -> Output:
        """There is evidence that the leader's process has gone: do not wait for the fetch time-out. Whether there is an
        election is still decided by the pre-vote. All voters notice at about the same time; if they ran for office at
        once, each would vote for itself."""
        role = self.role
        if isinstance(role, Follower) and role.leader_id == leader_id and not role.leader_gone:
            role.leader_gone = True
            ahead = sum(id_ < self.local.id for id_ in self.voters.ids if id_ != leader_id)
            role.fetch_deadline_ms = min(role.fetch_deadline_ms, now_ms + ahead * _TURN_MS)
        return self._finish(now_ms)

    # -- the state of the last run

    def _first_role(self, now_ms: int) -> Role:
        state = self._persisted or HardState()
        deadline_ms = self.election_deadline_ms(now_ms)
        local_id = self.local.id
        if state.epoch < self.log.last_epoch:
            # Records of a later epoch than we remember: whatever our vote was, it was for an earlier one.
            return Unattached(self.log.last_epoch, None, None, deadline_ms)
        voted_for_us = state.leader_id is None and state.voted is not None and self._is_local(state.voted)
        led = voted_for_us and state.epoch == self.log.last_epoch > 0
        if (state.leader_id == local_id or led) and self.settings.can_vote:
            # The records of an epoch in which we voted for ourselves and followed nobody are our own: we were elected,
            # and stopped before that was written down.
            others = [id_ for id_ in self.voters.ids if id_ != local_id]
            return Resigned(state.epoch, local_id, self.settings.endpoints, others, [], deadline_ms)
        if voted_for_us and self.may_run:
            return Candidate(state.epoch, self.local, Election(self.voters.ids, local_id), deadline_ms)
        if state.leader_id is not None:
            endpoints = self.voters.endpoints(state.leader_id)
            if endpoints:
                fetch_ms = self.timeouts.fetch_ms
                return Follower(state.epoch, state.leader_id, endpoints, state.voted, fetch_ms, now_ms)
        return Unattached(state.epoch, state.leader_id, state.voted, deadline_ms)

    def _is_local(self, key: ReplicaKey) -> bool:
        return key.id == self.local.id and key.directory_id in (self.local.directory_id, bytes(16))

    # -- as time passes

    def _finish(self, now_ms: int) -> Output:
        deadline_ms = now_ms
        for _ in range(16):
            role = self.role
            deadline_ms = self._poll(now_ms)
            if isinstance(self.role, Leader):
                self._settle(self.role, now_ms)
            if self.role is role and not (isinstance(role, Leader) and role.resign_requested):
                break
        deadline_ms = min(deadline_ms, self.fetches.deadline_ms)
        out, self._out = self._out, Output()
        out.deadline_ms = max(deadline_ms, now_ms)
        state = HardState(self.role.epoch, self.role.leader_id, self.role.voted)
        if state != self._persisted:
            out.hard_state = self._persisted = state
        if not self.durable and self._flush_asked < self.log.end_offset:
            self._flush_asked = self.log.end_offset
            out.flush = Flush(self._flush_asked, self._truncations)
        announced = (self.role.name, self.role.epoch, self.role.leader_id)
        out.role_changed = announced != self._announced
        self._announced = announced
        return out

    def _settle(self, leader: Leader, now_ms: int) -> None:
        """Counts what is durable here, and answers fetches that have something to return."""
        if leader.flushed(min(self._flushed_offset, self.log.end_offset), self.voters):
            self.committed_more(leader)
        self.fetches.retry(self, now_ms)

    def _poll(self, now_ms: int) -> int:
        role = self.role
        if isinstance(role, Leader):
            return self._poll_leader(role, now_ms)
        if isinstance(role, Nominee):
            return self._poll_nominee(role, now_ms)
        if isinstance(role, Follower):
            return fetching.poll_follower(self, role, now_ms)
        if isinstance(role, Resigned):
            return self._poll_resigned(role, now_ms)
        assert isinstance(role, Unattached)
        runs = self.may_run and not self.shutting_down
        if runs and now_ms >= role.election_deadline_ms:
            self.become_prospective(now_ms)
            return now_ms
        deadline_ms = fetching.fetch_from_bootstrap(self, now_ms)
        return min(deadline_ms, role.election_deadline_ms) if runs else deadline_ms

    def _poll_leader(self, leader: Leader, now_ms: int) -> int:
        if self.shutting_down or leader.resign_requested or now_ms >= leader.check_quorum_at_ms:
            self.become_resigned(leader, now_ms)
            return now_ms
        deadline_ms = min(leader.check_quorum_at_ms, changes.expire(self, leader, now_ms))
        if now_ms >= leader.begin_quorum_at_ms:
            for key in leader.voters_to_tell(now_ms):
                node = self.voters.node(key.id, self.settings.listener)
                request = raft_messages.begin_quorum_epoch_request(
                    self.settings.cluster_id, leader.epoch, self.local.id, self.settings.endpoints, key
                )
                self.send(node, request, now_ms)
            leader.told_voters(now_ms)
            leader.forget_inactive(now_ms)
        return min(deadline_ms, leader.begin_quorum_at_ms) if len(self.voters) > 1 else deadline_ms

    def _poll_nominee(self, role: Nominee, now_ms: int) -> int:
        if not self.shutting_down and now_ms >= role.election_deadline_ms:
            if isinstance(role, Prospective):
                self.election_lost(role, now_ms)
            else:
                self.become_prospective(now_ms)
            return now_ms
        deadline_ms = NEVER_MS if self.shutting_down else role.election_deadline_ms
        if not role.election.lost:
            for voter_id in role.election.unrecorded:
                voter = self.voters.get(voter_id)
                node = self.voters.node(voter_id, self.settings.listener)
                if voter is not None and node is not None:
                    request = raft_messages.vote_request(
                        self.settings.cluster_id, role.epoch, self.local, voter.key, self.end, role.pre_vote
                    )
                    deadline_ms = min(deadline_ms, self.send(node, request, now_ms))
        return deadline_ms

    def _poll_resigned(self, role: Resigned, now_ms: int) -> int:
        if not self.shutting_down and now_ms >= role.election_deadline_ms:
            self.become_unattached(role.epoch + 1, None, now_ms)
            return now_ms
        deadline_ms = NEVER_MS if self.shutting_down else role.election_deadline_ms
        for voter_id in role.unacknowledged:
            node = self.voters.node(voter_id, self.settings.listener)
            request = raft_messages.end_quorum_epoch_request(
                self.settings.cluster_id, role.epoch, self.local.id, role.successors
            )
            deadline_ms = min(deadline_ms, self.send(node, request, now_ms))
        return deadline_ms
