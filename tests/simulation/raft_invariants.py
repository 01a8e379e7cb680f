"""What must hold after every event of a simulated quorum, whatever happened to it."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any

from pylogd.controller.raft.leader import Leader
from pylogd.controller.raft.majority import majority_size
from pylogd.protocol.api import ApiKey

from simulation.raft_disk import StoredBatch

if TYPE_CHECKING:
    from simulation.raft_simulation import Cluster, Machine


class Violation(AssertionError):
    """An invariant does not hold."""


class Invariants:
    """Looks at the one replica an event changed, against what is known of all the others."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._leaders: dict[int, int] = {}
        self._votes: dict[tuple[int, int], int] = {}
        self._contents: dict[tuple[int, int], bytes] = {}
        #: what is committed, in order
        self.committed: list[StoredBatch] = []
        self._committed_at: dict[int, StoredBatch] = {}
        #: the epoch in which each of them was
        self._commit_epochs: list[int] = []

    @property
    def committed_end(self) -> int:
        return self.committed[-1].next_offset if self.committed else 0

    def replied(self, machine: Machine, request: Any, response: Any) -> bool:
        """A replica gives one vote in an epoch, over restarts and lost disks too. True when this answer is a vote."""
        if request.API_KEY != ApiKey.VOTE or not response.topics:
            return False
        asked, answered = request.topics[0].partitions[0], response.topics[0].partitions[0]
        if not answered.vote_granted or asked.pre_vote:
            return False
        key = machine.id, asked.replica_epoch
        given = self._votes.setdefault(key, asked.replica_id)
        if given != asked.replica_id:
            raise Violation(f"{machine.id} voted for {given} and {asked.replica_id} in epoch {key[1]}")
        return True

    def check(self, machine: Machine) -> None:
        node = machine.node
        if node.epoch < machine.epoch_seen:
            raise Violation(f"{machine.id} went back from epoch {machine.epoch_seen} to {node.epoch}")
        machine.epoch_seen = node.epoch
        self._check_contents(machine)
        if isinstance(node.role, Leader):
            self._check_leader(machine, node.role)
        self._check_committed(machine)

    def _check_contents(self, machine: Machine) -> None:
        """An offset and an epoch name one record in every log."""
        fresh = machine.log.batches
        for batch in reversed(fresh):
            key = batch.base_offset, batch.epoch
            if self._contents.setdefault(key, batch.data) != batch.data:
                raise Violation(f"{machine.id} has another batch at {key} than somebody else")
            if batch.base_offset < machine.checked_contents:
                break
        machine.checked_contents = machine.log.end_offset

    def _check_leader(self, machine: Machine, leader: Leader) -> None:
        first = self._leaders.setdefault(leader.epoch, machine.id)
        if first != machine.id:
            raise Violation(f"{first} and {machine.id} both lead epoch {leader.epoch}")
        if machine.led_epoch != leader.epoch:
            machine.led_epoch = leader.epoch
            # A candidate may learn that it was elected when others are long in later epochs; what was committed in
            # those it need not have.
            before = bisect_left(self._commit_epochs, leader.epoch)
            if before:
                last = self.committed[before - 1]
                if last.next_offset > machine.log.start_offset and last not in machine.log.batches:
                    raise Violation(f"{machine.id} leads epoch {leader.epoch} without the committed {last[:3]}")

        if leader.high_watermark is not None:
            behind = [batch.epoch for batch in machine.log.batches if batch.next_offset <= leader.high_watermark]
            if behind and behind[-1] != leader.epoch:
                raise Violation(f"{machine.id}, leader of {leader.epoch}, counts a record of {behind[-1]} as committed")

    def _check_committed(self, machine: Machine) -> None:
        high_watermark = machine.node.high_watermark
        if high_watermark is None:
            return
        if high_watermark < machine.high_watermark_seen:
            raise Violation(f"{machine.id}: high watermark from {machine.high_watermark_seen} to {high_watermark}")
        if high_watermark > machine.log.end_offset:
            raise Violation(f"{machine.id}: high watermark {high_watermark} behind the end of its log")
        if high_watermark == machine.high_watermark_seen:
            return
        for batch in machine.log.batches:
            if machine.high_watermark_seen <= batch.base_offset < high_watermark:
                self._committed(machine, batch)
        machine.high_watermark_seen = high_watermark

    def _committed(self, machine: Machine, batch: StoredBatch) -> None:
        known = self._committed_at.get(batch.base_offset)
        if known is not None:
            if known != batch:
                raise Violation(f"{machine.id} has {batch[:3]} committed where others have {known[:3]}")
            return
        if batch.base_offset != self.committed_end:
            raise Violation(f"{machine.id} has {batch[:3]} committed; the others have only {self.committed_end}")
        self.committed.append(batch)
        self._commit_epochs.append(machine.node.epoch)
        self._committed_at[batch.base_offset] = batch
        voters = machine.node.voters
        holding = sum(self._cluster.holds(key, batch) for key in voters.keys)
        if holding < majority_size(len(voters)):
            raise Violation(f"{machine.id} committed {batch[:3]}, which {holding} of {len(voters)} voters hold")
