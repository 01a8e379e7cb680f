"""The rules of the quorum one by one, as tables: majorities, votes, how two logs compare, who waits how long."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from pylogd.controller.raft import raft_messages
from pylogd.controller.raft.connections import Connections
from pylogd.controller.raft.leader import Leader
from pylogd.controller.raft.log_view import Match, OffsetAndEpoch, appendable, match, truncation_offset
from pylogd.controller.raft.majority import Election, majority_offset, majority_size
from pylogd.controller.raft.output import HardState, NotLeader
from pylogd.controller.raft.raft_node import RaftNode
from pylogd.controller.raft.roles import Candidate, Follower, Prospective, Resigned, Role, Unattached
from pylogd.controller.raft.settings import RaftSettings
from pylogd.controller.raft.voters import History, Node, ReplicaKey, VoterNode, VoterSet
from pylogd.protocol import batch as batches
from pylogd.protocol.errors import ErrorCode
from simulation.raft_disk import Disk, SimulatedLog

A, B = ReplicaKey(1, b"a" * 16), ReplicaKey(2, b"b" * 16)


@pytest.mark.parametrize(("voters", "size"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_a_majority_is_more_than_half(voters: int, size: int) -> None:
    assert majority_size(voters) == size


@pytest.mark.parametrize(
    ("acknowledged", "reached"),
    [([], -1), ([7], 7), ([7, -1], -1), ([7, 5], 5), ([9, 5, -1], 5), ([9, 9, 1], 9), ([9, 8, 7, 6], 7)],
)
def test_committed_is_what_a_majority_has_reached(acknowledged: list[int], reached: int) -> None:
    assert majority_offset(acknowledged) == reached
    assert majority_offset(reversed(acknowledged)) == reached


def test_an_election_counts_voters_only() -> None:
    election = Election([1, 2, 3], 1)
    assert (election.won, election.lost, election.unrecorded) == (False, False, [2, 3])
    election.record(9, True)
    assert not election.won
    election.record(2, False)
    assert not election.lost
    election.record(3, False)
    assert election.lost
    election.record(3, True)
    assert election.won
    assert election.granting == [1, 3]
    assert Election([1], 1).won
    assert not Election([2], 1).won, "whoever is not a voter has no vote, its own neither"


def _roles() -> dict[str, Role]:
    election = Election([1, 2, 3], 3)
    followed = Follower(5, 9, {}, None, 2000, 0)
    followed.fetched(1)
    local = VoterNode(ReplicaKey(3, b"c" * 16), {})
    return {
        "unattached": Unattached(5, None, None),
        "unattached, voted for A": Unattached(5, None, A),
        "unattached, voted for A's id": Unattached(5, None, ReplicaKey(1)),
        "unattached, knows a leader": Unattached(5, 9, None),
        "prospective": Prospective(5, None, None, {}, election, 0),
        "prospective, voted for B": Prospective(5, None, B, {}, election, 0),
        "candidate": Candidate(5, local.key, election, 0),
        "follower": Follower(5, 9, {}, None, 2000, 0),
        "follower that has fetched": followed,
        "resigned": Resigned(5, 3, {}, [], [], 0),
        "leader": Leader(5, local, VoterSet([local]), 0, [3], 2000, 0),
    }


@pytest.mark.parametrize(
    ("role", "vote", "vote_for_shorter", "pre_vote"),
    [
        ("unattached", True, False, True),
        ("unattached, voted for A", True, False, True),
        ("unattached, voted for A's id", True, False, True),
        ("unattached, knows a leader", False, False, True),
        ("prospective", True, False, True),
        ("prospective, voted for B", False, False, True),
        ("candidate", False, False, True),
        ("follower", False, False, True),
        ("follower that has fetched", False, False, False),
        ("resigned", False, False, True),
        ("leader", False, False, False),
    ],
)
def test_who_gets_a_vote(role: str, vote: bool, vote_for_shorter: bool, pre_vote: bool) -> None:
    subject = _roles()[role]
    assert subject.grants(A, True, False) is vote
    assert subject.grants(A, False, False) is vote_for_shorter
    assert subject.grants(A, True, True) is pre_vote
    assert not subject.grants(A, False, True)


def test_a_vote_for_one_directory_is_none_for_another() -> None:
    assert not Unattached(5, None, A).grants(ReplicaKey(1, b"x" * 16), True, False)


def _log(*epochs: int, start: int = 0, snapshot: OffsetAndEpoch | None = None) -> SimulatedLog:
    """A log with one record of each of these epochs."""
    disk = Disk({} if snapshot is None else {snapshot: b""})
    disk.start_offset = start
    log = SimulatedLog(disk)
    for epoch in epochs:
        log.append(_batch(log.end_offset, epoch), epoch)
    return log


def _batch(offset: int, epoch: int) -> bytearray:
    return batches.build_batch([batches.Record(0, 0, None, b"v")], base_offset=offset, leader_epoch=epoch)


@pytest.mark.parametrize(
    ("offset", "epoch", "found"),
    [
        (0, 0, Match()),
        (2, 1, Match()),
        (5, 3, Match()),
        (4, 1, Match(diverging=OffsetAndEpoch(2, 1))),
        (4, 2, Match(diverging=OffsetAndEpoch(2, 1))),
        (6, 3, Match(diverging=OffsetAndEpoch(5, 3))),
        (6, 4, Match(diverging=OffsetAndEpoch(5, 3))),
    ],
)
def test_a_followers_end_against_the_leaders_log(offset: int, epoch: int, found: Match) -> None:
    assert match(_log(1, 1, 3, 3, 3), offset, epoch) == found


@pytest.mark.parametrize(
    ("offset", "epoch", "found"),
    [
        (0, 0, Match(snapshot=OffsetAndEpoch(10, 2))),
        (9, 2, Match(snapshot=OffsetAndEpoch(10, 2))),
        (10, 1, Match(snapshot=OffsetAndEpoch(10, 2))),
        (11, 1, Match(snapshot=OffsetAndEpoch(10, 2))),
        (10, 2, Match()),
        (12, 3, Match()),
        (12, 2, Match(diverging=OffsetAndEpoch(10, 2))),
    ],
)
def test_a_follower_behind_the_start_of_the_log_is_given_the_snapshot(offset: int, epoch: int, found: Match) -> None:
    assert match(_log(3, 3, start=10, snapshot=OffsetAndEpoch(10, 2)), offset, epoch) == found


def test_the_first_snapshot_is_not_fetched() -> None:
    assert match(_log(1, snapshot=OffsetAndEpoch(0, 0)), 0, 0) == Match()


@pytest.mark.parametrize(
    ("diverging", "offset"),
    [
        (OffsetAndEpoch(3, 2), 2),
        (OffsetAndEpoch(1, 1), 1),
        (OffsetAndEpoch(9, 1), 2),
        (OffsetAndEpoch(4, 4), 4),
        (OffsetAndEpoch(1, 0), 1),
    ],
)
def test_a_diverging_log_is_cut_where_both_may_agree(diverging: OffsetAndEpoch, offset: int) -> None:
    assert truncation_offset(_log(1, 1, 4, 4, 5), diverging) == offset


def test_only_sound_batches_that_continue_the_log_are_taken() -> None:
    good = bytes(_batch(5, 2) + _batch(6, 2))
    assert appendable(good, 5, 2) == good
    assert appendable(good, 4, 2) == b""
    assert appendable(good + bytes(_batch(7, 3)), 5, 2) == good, "a later leader must be followed first"
    assert appendable(good + bytes(_batch(7, 2))[:-1], 5, 2) == good
    torn = bytearray(good)
    torn[-1] ^= 1
    assert appendable(torn, 5, 2) == good[: len(good) // 2]


def test_history_by_offset() -> None:
    history: History[str] = History()
    assert history.last is None
    for offset, value in ((-1, "a"), (5, "b"), (9, "c")):
        history.add(offset, value)
    assert [history.at(offset) for offset in (-1, 4, 5, 8, 9, 99)] == ["a", "a", "b", "b", "c", "c"]
    assert history.before_last == "b"
    history.truncate_before(6)
    assert history.at(4) is None
    assert history.at(5) == "b"
    history.truncate_from(9)
    assert history.last == (5, "b")


def test_voter_sets_change_by_one() -> None:
    one = VoterSet([VoterNode(A, {"C": ("h", 1)}, (0, 1))])
    two = one.add(VoterNode(B, {"C": ("h", 2)}, (0, 1)))
    assert two is not None
    assert two.ids == [1, 2]
    assert two.add(VoterNode(ReplicaKey(2, b"x" * 16), {})) is None
    assert one.remove(A) is None, "the last one stays"
    assert two.remove(ReplicaKey(2, b"x" * 16)) is None
    assert two.remove(B) == one
    moved = VoterNode(A, {"C": ("elsewhere", 1)}, (0, 1))
    assert two.needs_update(moved)
    assert not two.needs_update(VoterNode(ReplicaKey(1, b"x" * 16), {}))
    updated = two.update(moved)
    assert updated is not None
    assert updated.node(1, "C") == Node(1, "elsewhere", 1)
    assert VoterSet.from_record(two.to_record()) == two
    assert VoterSet.static("C", {1: ("h", 1)}).is_voter(A), "a static voter is known by its id alone"


def test_one_request_at_a_time_and_a_pause_after_failures() -> None:
    connections = Connections([Node(-2, "h", 1)], retry_backoff_ms=20, request_timeout_ms=1000, rng=Random(0))
    first = connections.sent(7, 0)
    assert not connections.ready(7, 999)
    assert connections.ready_bootstrap(0) is None, "nothing else while something is in flight"
    assert connections.ready(7, 1000)
    second = connections.sent(7, 1000)
    assert not connections.expects(7, first)
    connections.answered(7, second, False, 1100)
    assert connections.backing_off(7, 1119)
    assert connections.ready(7, 1120)
    assert connections.ready_bootstrap(1100) == Node(-2, "h", 1)


def _node(hard_state: HardState | None = None, epochs: tuple[int, ...] = (), local: ReplicaKey = A) -> RaftNode:
    voters = VoterSet.static("C", {1: ("h", 1), 2: ("h", 2), 3: ("h", 3)})
    settings = RaftSettings(local, cluster_id="c", listener="C", endpoints={"C": ("h", 1)}, static_voters=voters)
    log = _log(*epochs)
    return RaftNode(settings, log, hard_state, Random(1), flushed_offset=log.end_offset)


@pytest.mark.parametrize(
    ("hard_state", "epochs", "role"),
    [
        (None, (), "unattached"),
        (HardState(4, 1), (4,), "resigned"),
        (HardState(4, None, A), (3,), "candidate"),
        (HardState(4, None, A), (3, 4), "resigned"),
        (HardState(4, None, B), (3,), "unattached"),
        (HardState(4, 2, B), (4,), "follower"),
        (HardState(4, 9), (4,), "unattached"),
        (HardState(3, 2), (4,), "unattached"),
    ],
)
def test_where_a_replica_takes_up_again(hard_state: HardState | None, epochs: tuple[int, ...], role: str) -> None:
    node = _node(hard_state, epochs)
    node.start(0)
    assert node.role.name == role
    assert node.epoch == max(hard_state.epoch if hard_state else 0, *epochs, 0)


def test_a_vote_is_in_the_output_before_its_answer_may_leave() -> None:
    node = _node(epochs=(1,))
    node.start(0)
    request = raft_messages.vote_request("c", 7, B, A, OffsetAndEpoch(9, 3), False)
    out = node.request("token", request, 2, "C", 1)
    assert out.hard_state == HardState(7, None, B)
    [reply] = out.replies
    assert reply.token == "token"
    assert reply.response.topics[0].partitions[0].vote_granted
    again = node.request("token", request, 2, "C", 2)
    assert again.hard_state is None, "it is remembered already"
    assert again.replies[0].response.topics[0].partitions[0].vote_granted


def test_nobody_but_the_leader_appends() -> None:
    node = _node()
    node.start(0)
    with pytest.raises(NotLeader):
        node.append(_batch(0, 1), 1, 0)


@pytest.mark.parametrize(("position", "wait_ms"), [(0, 0), (1, 250), (2, 500), (None, 1000)])
def test_successors_run_for_office_one_after_the_other(position: int | None, wait_ms: int) -> None:
    node = _node(HardState(4, 2), (4,))
    node.start(0)
    others = [ReplicaKey(7), ReplicaKey(8), ReplicaKey(9)]
    successors: list[Any] = others[:2] if position is not None else others
    if position is not None:
        successors.insert(position, A)
    node.request("token", raft_messages.end_quorum_epoch_request("c", 4, 2, successors), 1, "C", 10)
    role = node.role
    if position == 0:
        assert isinstance(role, Prospective)
    else:
        assert isinstance(role, Follower)
        assert role.fetch_deadline_ms == 10 + wait_ms


def test_voters_that_notice_the_end_of_the_leader_run_one_after_the_other() -> None:
    """The first at once, and whoever waits for its turn is ready to vote for it."""
    first, second = _node(HardState(4, 3), (4,)), _node(HardState(4, 3), (4,), local=B)
    for node in (first, second):
        node.start(0)
        assert isinstance(node.role, Follower)
        node.role.fetched(1)
    ask = raft_messages.vote_request("c", 4, A, B, OffsetAndEpoch(9, 4), pre_vote=True)

    def granted(now_ms: int) -> bool:
        [reply] = second.request("token", ask, 2, "C", now_ms).replies
        return bool(reply.response.topics[0].partitions[0].vote_granted)

    assert not granted(5)
    for node in (first, second):
        node.leader_unreachable(3, 10)
    assert isinstance(first.role, Prospective)
    assert isinstance(second.role, Follower)
    assert granted(20)
    second.leader_unreachable(3, 30)
    assert isinstance(second.role, Follower), "its turn does not come sooner"
    second.tick(59)
    assert isinstance(second.role, Follower)
    second.tick(60)
    assert isinstance(second.role, Prospective)


def test_requests_of_another_epoch_or_to_another_voter_are_refused() -> None:
    node = _node(HardState(4, 2), (4,))
    node.start(0)

    def answer(request: Any, version: int) -> Any:
        return node.request("token", request, version, "C", 1).replies[0].response

    old = answer(raft_messages.vote_request("c", 3, B, A, OffsetAndEpoch(9, 2), False), 2).topics[0].partitions[0]
    assert (old.error_code, old.leader_id, old.leader_epoch) == (ErrorCode.FENCED_LEADER_EPOCH, 2, 4)
    illegal = answer(raft_messages.vote_request("c", 5, B, A, OffsetAndEpoch(9, 5), False), 2).topics[0].partitions[0]
    assert illegal.error_code == ErrorCode.INVALID_REQUEST
    fetch = answer(raft_messages.fetch_request("c", 4, B, OffsetAndEpoch(0, 0), None, 100, 0), 18)
    assert fetch.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [(n.node_id, n.host, n.port) for n in fetch.node_endpoints] == [(2, "h", 2)], "it says who leads"
    wrong = answer(raft_messages.begin_quorum_epoch_request("c", 6, 3, {"C": ("h", 3)}, ReplicaKey(1, b"x" * 16)), 1)
    assert wrong.topics[0].partitions[0].error_code == ErrorCode.INVALID_VOTER_KEY
    assert (node.epoch, node.leader_id) == (6, 3), "that there is a leader is news nevertheless"
