"""Who joins and who leaves the in-sync replicas, and what the high watermark waits for meanwhile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.replication import in_sync
from pylogd.replication.in_sync import Proposal, Standing
from pylogd.replication.partition import Partition
from pylogd.replication.replicas import Replicas
from pylogd.runtime.clock import ManualClock

LAG_MS = 1000


class Log:
    def __init__(self) -> None:
        self.config = SimpleNamespace(flush_messages=1 << 62, min_insync_replicas=1)
        self.log_start_offset = self.log_end_offset = self.high_watermark = self.flushed_offset = 0
        self.epochs = SimpleNamespace(assign=lambda epoch, offset: None)
        self.flush_listeners: list[Any] = []


class Leader:
    """Broker 1 leads epoch 3 with a log of 10 records; brokers 2 and 3 follow."""

    def __init__(self, isr: tuple[int, ...] = (1, 2, 3), min_isr: int = 1) -> None:
        self.clock = ManualClock(monotonic_ms=1_000_000)
        self.standings: dict[int, Standing] = {n: Standing(100 + n, True) for n in (1, 2, 3)}
        self.proposals: list[Proposal] = []
        self.replicas = replicas = Replicas(
            1,
            SimpleNamespace(call_soon=lambda *args: None),  # type: ignore[arg-type]
            clock=self.clock,
            standing=self.standings.get,
            lag_ms_max=LAG_MS,
        )
        replicas.propose = lambda partition, proposal: self.proposals.append(proposal)
        self.log = Log()
        self.log.log_end_offset = 10
        self.log.config.min_insync_replicas = min_isr
        self.partition: Partition = replicas.add("t", 0, bytes(16), self.log)  # type: ignore[arg-type]
        self.partition.become_leader(3, isr, (1, 2, 3), 7)

    def fetch(self, replica: int, offset: int, epoch: int | None = None) -> None:
        broker_epoch = 100 + replica if epoch is None else epoch
        self.partition.follower_fetched(replica, broker_epoch, offset, 0, self.clock.monotonic_ms())

    def append(self, end: int) -> None:
        self.log.log_end_offset = end
        self.partition.advance()

    def wait(self, ms: int) -> None:
        self.clock.advance(ms)
        in_sync.shrink(self.partition, self.replicas, self.clock.monotonic_ms())

    @property
    def members(self) -> list[tuple[int, ...]]:
        return [tuple(member for member, _ in proposal.isr) for proposal in self.proposals]


def test_a_follower_at_the_watermark_and_in_the_epoch_joins() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(2, 10)
    leader.fetch(3, 9)
    assert leader.members == []
    leader.fetch(3, 10)
    assert leader.proposals == [Proposal(((1, 101), (2, 102), (3, 103)), 3, 7, 3)]


def test_the_start_of_the_epoch_counts_even_above_the_watermark() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(2, 4)  # the watermark is at 4, the epoch began at 10
    leader.fetch(3, 5)
    assert leader.members == []


@pytest.mark.parametrize("standing", [None, Standing(103, False), Standing(104, True)])
def test_who_is_fenced_leaving_or_another_incarnation_does_not_join(standing: Standing | None) -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(2, 10)
    leader.fetch(3, 9)
    leader.standings.pop(3)
    if standing is not None:
        leader.standings[3] = standing
    leader.fetch(3, 10)
    assert leader.members == []


def test_a_fetch_of_a_replaced_incarnation_is_refused() -> None:
    leader = Leader()
    with pytest.raises(KafkaError) as refusal:
        leader.fetch(3, 10, epoch=99)
    assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    leader.fetch(3, 10, epoch=-1)


def test_who_lags_too_long_leaves() -> None:
    leader = Leader()
    leader.fetch(2, 10)
    leader.fetch(3, 10)
    leader.append(12)
    leader.wait(LAG_MS)
    assert leader.members == []
    leader.fetch(2, 12)
    leader.wait(1)
    assert leader.proposals == [Proposal(((1, 101), (2, 102)), 3, 7, None)]


def test_who_is_at_the_end_never_leaves() -> None:
    leader = Leader()
    leader.fetch(2, 10)
    leader.fetch(3, 10)
    leader.wait(100 * LAG_MS)
    assert leader.members == []


def test_a_follower_that_keeps_pace_with_constant_appends_stays() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(2, 10)
    for end in range(11, 40):
        leader.append(end)
        leader.clock.advance(LAG_MS // 2)
        leader.fetch(2, end - 1)  # where the leader was at its last fetch
        leader.wait(0)
    assert leader.members == []


def test_who_never_fetched_leaves_after_the_time() -> None:
    leader = Leader()
    leader.fetch(2, 10)
    leader.wait(LAG_MS + 1)
    # Its epoch is not known: the controller knows.
    assert leader.proposals == [Proposal(((1, 101), (2, 102)), 3, 7, None)]


def test_metadata_that_only_repeats_an_answer_does_not_drop_the_next_proposal() -> None:
    leader = Leader(isr=(1,))
    leader.clock.advance(5 * LAG_MS)
    leader.fetch(2, 10)
    leader.append(40)
    in_sync.accepted(leader.partition, leader.proposals[0], (1, 2), 3, 8)
    leader.fetch(3, 10)
    assert leader.members == [(1, 2), (1, 2, 3)]
    leader.partition.become_leader(3, (1, 2), (1, 2, 3), 8)
    # The controller may have accepted broker 3 by now: nothing is replicated that it does not have.
    leader.fetch(2, 40)
    assert leader.log.high_watermark == 10
    leader.partition.become_leader(3, (1, 2), (1, 2, 3), 9)
    assert leader.partition.proposal is None


def test_one_proposal_at_a_time() -> None:
    leader = Leader(isr=(1,))
    leader.fetch(2, 10)
    leader.fetch(3, 10)
    assert leader.members == [(1, 2)]
    in_sync.accepted(leader.partition, leader.proposals[0], (1, 2), 3, 8)
    leader.fetch(3, 10)
    assert leader.members == [(1, 2), (1, 2, 3)]
    assert leader.proposals[1].partition_epoch == 8


def test_a_replica_that_joins_counts_before_the_controller_agrees() -> None:
    leader = Leader(isr=(1,))
    leader.fetch(2, 10)
    leader.append(15)
    assert leader.log.high_watermark == 10
    leader.fetch(2, 15)
    assert leader.log.high_watermark == 15


def test_a_replica_that_leaves_counts_until_the_controller_agrees() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(2, 10)
    leader.append(15)
    leader.wait(LAG_MS + 1)
    assert leader.log.high_watermark == 10
    in_sync.accepted(leader.partition, leader.proposals[0], (1,), 3, 8)
    assert leader.log.high_watermark == 15


def test_the_watermark_waits_for_a_caught_up_replica_that_may_join() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(2, 10)
    leader.partition.proposal = Proposal((), 3, 7, None)  # something else is pending: it cannot be proposed yet
    leader.fetch(3, 10)
    leader.append(12)
    leader.fetch(2, 12)
    assert leader.log.high_watermark == 10
    leader.standings[3] = Standing(103, False)
    leader.partition.advance()
    assert leader.log.high_watermark == 12


def test_too_few_in_sync_stop_the_watermark_even_if_one_is_about_to_join() -> None:
    leader = Leader(isr=(1,), min_isr=2)
    leader.fetch(2, 10)
    assert leader.log.high_watermark == 0
    in_sync.accepted(leader.partition, leader.proposals[0], (1, 2), 3, 8)
    assert leader.log.high_watermark == 10


@pytest.mark.parametrize(
    ("code", "pending", "again"),
    [
        (ErrorCode.INELIGIBLE_REPLICA, False, False),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, False, False),
        (ErrorCode.INVALID_UPDATE_VERSION, True, False),
        (ErrorCode.FENCED_LEADER_EPOCH, True, False),
        (ErrorCode.UNKNOWN_TOPIC_ID, True, False),
        (ErrorCode.NEW_LEADER_ELECTED, True, False),
        (ErrorCode.NOT_CONTROLLER, True, True),
        (ErrorCode.UNKNOWN_SERVER_ERROR, True, True),
    ],
)
def test_refusals(code: ErrorCode, pending: bool, again: bool) -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(2, 10)
    leader.fetch(3, 10)
    assert in_sync.refused(leader.partition, leader.proposals[0], code) is again
    assert (leader.partition.proposal is not None) is pending
    assert leader.partition.maximal_isr == ((1, 2, 3) if pending else (1, 2))
    assert len(leader.proposals) == 1  # whoever took it to the controller proposes again


def test_newer_metadata_has_the_last_word() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(2, 10)
    leader.fetch(3, 10)
    leader.partition.become_leader(3, (1,), (1, 2, 3), 9)
    in_sync.accepted(leader.partition, leader.proposals[0], (1, 2, 3), 3, 8)
    assert leader.partition.isr == (1,)
    assert leader.partition.partition_epoch == 9


def test_an_answer_of_another_leader_epoch_is_ignored() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(2, 10)
    leader.fetch(3, 10)
    proposal = leader.proposals[0]
    leader.partition.become_leader(4, (1, 2), (1, 2, 3), 10)
    in_sync.accepted(leader.partition, proposal, (1, 2, 3), 3, 11)
    assert leader.partition.isr == (1, 2)


def test_a_new_leader_forgets_what_followers_told_the_old_one() -> None:
    leader = Leader()
    leader.fetch(2, 10)
    leader.fetch(3, 10)
    leader.partition.become_follower(4, 2, (1, 2, 3), (1, 2, 3), 8)
    leader.partition.become_leader(5, (1, 2, 3), (1, 2, 3), 9)
    leader.append(11)
    assert [follower.log_end_offset for follower in leader.partition.followers.values()] == [-1, -1]
    assert leader.log.high_watermark == 10


@pytest.mark.parametrize(("epoch", "known"), [(4, 12), (5, 10)], ids=["the next epoch", "one was missed"])
def test_a_leader_that_missed_an_epoch_forgets_what_followers_told_it(epoch: int, known: int) -> None:
    """Another may have led in between and made them truncate, and this broker hears only of its own return."""
    leader = Leader()
    leader.append(12)
    leader.fetch(2, 12)
    leader.fetch(3, 10)
    leader.partition.become_leader(epoch, (1, 2), (1, 2, 3), 9)
    assert leader.log.high_watermark == known
    leader.fetch(2, 12)
    assert leader.log.high_watermark == 12
