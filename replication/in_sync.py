"""Who is in sync: what the leader knows of its followers, and which changes of the in-sync replicas it proposes.

A follower joins once it has everything below the high watermark and everything from before the leader's epoch. Its
broker must be alive in the metadata, under the broker epoch that the fetch carries. It leaves when it has not been at
the leader's log end for `replica.lag.time.max.ms`.

The controller decides. Until it has answered, the proposal is pending and no other is made. A replica that is about to
join already counts for the high watermark, one that is about to leave still does: whatever the controller answers,
nothing is called replicated that is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pylogd.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from pylogd.replication.partition import Partition
    from pylogd.replication.replicas import Replicas

#: The controller did not apply the request, and the epochs in it are right: forget the proposal, make a new one.
_NOT_APPLIED = frozenset((ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA))
#: Nobody here knows which ISR holds now. New metadata will tell; until it comes, whoever may be in sync counts.
_AWAIT_METADATA = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    )
)


class Standing(NamedTuple):
    """A living broker as the cluster's metadata has it: its epoch, and whether it may join an ISR (it is neither fenced
    nor shutting down)."""

    epoch: int
    may_join: bool


class FollowerState:
    """What the leader knows of one follower from its fetches."""

    __slots__ = (
        "broker_epoch",
        "last_caught_up_ms",
        "last_fetch_leader_end",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self) -> None:
        self.log_end_offset = -1
        self.log_start_offset = -1
        #: -2 until it has fetched; -1 when its fetches carry none.
        self.broker_epoch = -2
        #: The leader's log end and the time at the last fetch. The next fetch tells with them whether the follower had
        #: caught up at that time.
        self.last_fetch_leader_end = -1
        self.last_fetch_ms = 0
        self.last_caught_up_ms = 0

    def start_epoch(self, now_ms: int, leader_end: int, *, new_leader: bool, in_sync: bool) -> None:
        """A leader epoch begins. A follower in the ISR counts as caught up now, any other as never caught up."""
        self.last_caught_up_ms = now_ms if in_sync else -(1 << 62)
        if new_leader:
            self.log_end_offset = self.log_start_offset = self.last_fetch_leader_end = -1
            self.last_fetch_ms = 0
            self.broker_epoch = -2
        else:
            self.last_fetch_leader_end = leader_end
            self.last_fetch_ms = now_ms if in_sync else 0

    def fetched(self, offset: int, log_start_offset: int, broker_epoch: int, leader_end: int, now_ms: int) -> None:
        if offset >= leader_end:
            self.last_caught_up_ms = now_ms
        elif offset >= self.last_fetch_leader_end >= 0 and self.last_fetch_ms > self.last_caught_up_ms:
            self.last_caught_up_ms = self.last_fetch_ms
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        if leader_end > self.last_fetch_leader_end:
            self.last_fetch_leader_end = leader_end
        self.last_fetch_ms = now_ms

    def idle_until(self, now_ms: int) -> None:
        """It had everything until now, although its fetches did not name this partition."""
        if now_ms > self.last_caught_up_ms:
            self.last_caught_up_ms = now_ms

    def caught_up(self, leader_end: int, now_ms: int, lag_ms_max: int) -> bool:
        return self.log_end_offset == leader_end or now_ms - self.last_caught_up_ms <= lag_ms_max


class Proposal(NamedTuple):
    """An ISR that the controller is asked for, as (broker, broker epoch), with the epochs it is based on."""

    isr: tuple[tuple[int, int], ...]
    leader_epoch: int
    partition_epoch: int
    #: Who joins; None when replicas leave.
    joins: int | None


# -- what to propose


def expansion(partition: Partition, replicas: Replicas, replica_id: int) -> Proposal | None:
    """What to propose after a fetch of a replica outside the ISR."""
    if partition.proposal is not None or replica_id in partition.isr:
        return None
    follower = partition.followers[replica_id]
    log = partition.log
    if follower.log_end_offset < log.high_watermark or follower.log_end_offset < partition.epoch_start_offset:
        return None
    if not eligible(partition, replicas, replica_id):
        return None
    return _proposal(partition, replicas, (*partition.isr, replica_id), replica_id)


def shrinkage(partition: Partition, replicas: Replicas, now_ms: int) -> Proposal | None:
    """What to propose when time has passed."""
    if partition.proposal is not None or not partition.is_leader or len(partition.isr) < 2:
        return None
    end = partition.log.log_end_offset
    followers = partition.followers
    stay = tuple(
        replica
        for replica in partition.isr
        if (replica not in followers and replica == partition.leader)
        or (replica in followers and followers[replica].caught_up(end, now_ms, replicas.lag_ms_max))
    )
    return None if len(stay) == len(partition.isr) else _proposal(partition, replicas, stay, None)


def eligible(partition: Partition, replicas: Replicas, replica_id: int) -> bool:
    """Whether the broker may join, and is the incarnation that fetched (its broker epoch tells)."""
    standing = replicas.standing(replica_id)
    if standing is None or not standing.may_join:
        return False
    epoch = partition.followers[replica_id].broker_epoch
    return epoch == -1 or epoch == standing.epoch


def _proposal(partition: Partition, replicas: Replicas, members: tuple[int, ...], joins: int | None) -> Proposal:
    me = partition.leader
    epochs = []
    for member in members:
        if member == me:
            epochs.append((member, replicas.broker_epoch))
        else:
            # It has not fetched from us yet (-1). If it restarted, the controller took it out of the ISR and refuses.
            epochs.append((member, max(partition.followers[member].broker_epoch, -1)))
    return Proposal(tuple(epochs), partition.leader_epoch, partition.partition_epoch, joins)


# -- a proposal, from asking to the answer


def expand(partition: Partition, replicas: Replicas, replica_id: int) -> None:
    """A replica outside the ISR fetched: it joins if it may."""
    _propose(partition, replicas, expansion(partition, replicas, replica_id))


def shrink(partition: Partition, replicas: Replicas, now_ms: int) -> None:
    """Time has passed: followers that fell behind leave."""
    _propose(partition, replicas, shrinkage(partition, replicas, now_ms))


def _propose(partition: Partition, replicas: Replicas, proposal: Proposal | None) -> None:
    if proposal is None or replicas.propose is None:
        return
    partition.proposal = proposal
    if proposal.joins is not None:
        partition.maximal_isr = (*partition.isr, proposal.joins)
    replicas.propose(partition, proposal)


def accepted(
    partition: Partition, proposal: Proposal, isr: tuple[int, ...], leader_epoch: int, partition_epoch: int
) -> None:
    """The controller accepted. Newer metadata may have come first; then it has the last word."""
    if partition.proposal is not proposal:
        return
    if leader_epoch != partition.leader_epoch or partition_epoch < partition.partition_epoch:
        return
    partition.proposal = None
    partition.isr = partition.maximal_isr = isr
    partition.partition_epoch = partition_epoch
    partition.advance()


def refused(partition: Partition, proposal: Proposal, code: ErrorCode) -> bool:
    """The controller refused; True when the same must be proposed again."""
    if partition.proposal is not proposal:
        return False
    meaning = verdict(code)
    if meaning.forget:
        partition.proposal = None
        partition.maximal_isr = partition.isr
        partition.advance()
    return meaning.again


class Verdict(NamedTuple):
    """What a refusal means: forget the proposal, or ask again. Otherwise it stays pending until new metadata comes."""

    forget: bool
    again: bool


def verdict(code: ErrorCode) -> Verdict:
    if code in _NOT_APPLIED:
        return Verdict(forget=True, again=False)
    return Verdict(forget=False, again=code not in _AWAIT_METADATA)
