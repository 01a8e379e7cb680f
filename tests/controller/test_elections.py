"""Leaders, in-sync and eligible replicas: what a change to a partition becomes."""

from __future__ import annotations

from typing import Any

import pytest
from pylogd.controller.decide import brokers, elections, isr_proposals, reassignments
from pylogd.controller.decide.partition_change import PREFERRED, UNCLEAN, PartitionChange
from pylogd.metadata.registrations import RECOVERED, RECOVERING, Partition, merge_partition
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages import (
    alter_partition,
    alter_partition_reassignments,
    elect_leaders,
    list_partition_reassignments,
)
from support.controllers import broker_directory, new_state, replay, with_topic

ID = b"t" * 16


def changed(state: Any, records: list[Any], name: str = "t", index: int = 0) -> Partition:
    """The partition after the records, without touching the state."""
    partition = state.image.topics[name].partitions[index]
    for record, _ in records:
        if type(record).__name__ == "PartitionChangeRecord" and record.partition_id == index:
            partition = merge_partition(partition, record, tuple)
    return partition


def summary(p: Partition) -> tuple[Any, ...]:
    return p.leader, p.isr, p.elr, p.last_known_elr, p.leader_epoch


# Fencing broker 0 with three brokers, min.insync.replicas 2 and eligible leader replicas on:
# (replicas, isr, elr) -> (leader, isr, elr, last known elr, leader epoch)
FENCING = [
    # a follower takes over; the ISR is still large enough
    ([0, 1, 2], [0, 1, 2], None, (1, (1, 2), (), (), 1)),
    # below min ISR: the fenced member is remembered as eligible
    ([0, 1], [0, 1], None, (1, (1,), (0,), (), 1)),
    # nobody left in sync: no leader, but the fenced one may come back
    ([0, 1], [0], None, (-1, (), (0,), (0,), 1)),
    # an eligible replica leads when the ISR is empty
    ([0, 1], [0], [1], (1, (1,), (0,), (), 1)),
    # only a follower goes: the leader stays in its epoch
    ([1, 0], [1, 0], None, (1, (1,), (0,), (), 0)),
]


@pytest.mark.parametrize(("replicas", "in_sync", "elr", "expected"), FENCING)
def test_fencing(replicas: list[int], in_sync: list[int], elr: list[int] | None, expected: tuple[Any, ...]) -> None:
    state = with_topic(
        new_state(3), {"replicas": replicas, "isr": in_sync, "eligible_leader_replicas": elr}, min_insync_replicas="2"
    )
    records = brokers.fence_records(state, state.image.brokers[0])
    assert type(records[-1][0]).__name__ == "BrokerRegistrationChangeRecord"
    assert summary(changed(state, records)) == expected


def test_without_elr_the_last_in_sync_replica_stays_in_the_isr() -> None:
    state = with_topic(new_state(2, features={}), {"replicas": [0, 1], "isr": [0]})
    after = changed(state, brokers.fence_records(state, state.image.brokers[0]))
    assert summary(after) == (-1, (0,), (), (), 1)


def test_unclean_election_only_where_the_topic_allows_it() -> None:
    for allowed, expected in (("false", (-1, (0,), 1, RECOVERED)), ("true", (1, (1,), 1, RECOVERING))):
        state = with_topic(
            new_state(2, features={}), {"replicas": [0, 1], "isr": [0]}, unclean_leader_election_enable=allowed
        )
        after = changed(state, brokers.fence_records(state, state.image.brokers[0]))
        assert (after.leader, after.isr, after.leader_epoch, after.leader_recovery_state) == expected


def fence_gone(state: Any, broker_id: int, epoch: int, now_ms: int = 0) -> list[Any]:
    """The records when the process of a broker is known to be gone."""
    state.heartbeats.process_gone(broker_id, epoch, now_ms)
    return brokers.fence_broker(state, broker_id, epoch).records


def test_a_broker_known_to_be_gone_is_fenced_early_but_never_replaced_uncleanly() -> None:
    state = with_topic(
        new_state(2, features={}),
        {"replicas": [0, 1], "isr": [0]},
        {"replicas": [0, 1]},
        unclean_leader_election_enable="true",
    )
    state.heartbeats.touch(0, 100, 0)
    assert fence_gone(state, 0, 99) == []  # an earlier incarnation
    records = fence_gone(state, 0, 100)
    assert [changed(state, records, index=index).leader for index in (0, 1)] == [-1, 1]
    assert not state.heartbeats.has_session(0, 100, 1)
    replay(state, records)
    assert state.image.brokers[0].fenced
    assert fence_gone(state, 0, 100) == []


def test_as_long_as_a_gone_broker_may_be_back_nobody_replaces_it_uncleanly() -> None:
    state = with_topic(
        new_state(3, fenced=[1, 2]),
        {"replicas": [0, 1], "isr": [0]},
        {"replicas": [2, 1], "isr": [2], "leader": -1},
        unclean_leader_election_enable="true",
    )
    replay(state, fence_gone(state, 0, 100))
    # Not when another broker comes, and not when it is looked for leaderless partitions; but for those of others.
    replay(state, brokers._unfence_records(state, state.image.brokers[1]))
    assert elections.elect_unclean(state).records == []
    assert [partition.leader for partition in state.image.topics["t"].partitions] == [-1, 1]
    assert not state.heartbeats.stop_awaiting(8_999)
    assert state.heartbeats.stop_awaiting(9_000)
    assert changed(state, elections.elect_unclean(state).records).leader == 1


def test_a_new_controller_does_not_know_when_a_broker_went() -> None:
    state = with_topic(
        new_state(2, fenced=[0]),
        {"replicas": [0, 1], "isr": [0], "leader": -1},
        unclean_leader_election_enable="true",
    )
    state.heartbeats.activate(state.image, now_ms=1_000)
    assert elections.elect_unclean(state).records == []
    replay(state, brokers._unfence_records(state, state.image.brokers[0]))
    state.heartbeats.heard(0, metadata_offset=0)
    assert not state.heartbeats.awaited


def test_a_replica_in_a_failed_directory_does_not_lead() -> None:
    state = with_topic(
        new_state(3), {"replicas": [0, 1, 2], "directories": [broker_directory(0), b"gone" * 4, broker_directory(2)]}
    )
    assert changed(state, brokers.fence_records(state, state.image.brokers[0])).leader == 2


def test_unfencing_elects_for_leaderless_partitions() -> None:
    state = with_topic(
        new_state(1, fenced=[0]),
        {"replicas": [0], "isr": [], "leader": -1, "eligible_leader_replicas": [0], "last_known_elr": [0]},
        {"replicas": [0], "isr": [], "leader": -1, "last_known_elr": [0]},
    )
    records = brokers._unfence_records(state, state.image.brokers[0])
    assert summary(changed(state, records, index=0)) == (0, (0,), (), (), 1)
    assert changed(state, records, index=0).leader_recovery_state == RECOVERED
    # Not eligible, only the last to lead: it takes over again, and may have lost records.
    assert summary(changed(state, records, index=1)) == (0, (0,), (), (), 1)
    assert changed(state, records, index=1).leader_recovery_state == RECOVERING


def test_an_unclean_shutdown_costs_eligibility() -> None:
    state = with_topic(new_state(2), {"replicas": [0, 1]}, {"replicas": [0]}, min_insync_replicas="2")
    records = brokers.shutdown_records(state, 0, clean=False)
    assert summary(changed(state, records, index=0)) == (1, (1,), (), (0,), 1)
    assert summary(changed(state, records, index=1)) == (-1, (), (), (0,), 1)
    clean = brokers.shutdown_records(state, 0, clean=True)
    assert summary(changed(state, clean, index=1)) == (-1, (), (0,), (0,), 1)


def test_no_change_is_no_record() -> None:
    state = with_topic(new_state(2), {"replicas": [0, 1]})
    assert PartitionChange(state, "t", ID, 0, state.image.topics["t"].partitions[0]).build() is None


def test_preferred_and_unclean_elections_of_a_change() -> None:
    state = with_topic(new_state(3, fenced=[2]), {"replicas": [0, 1], "leader": 1}, {"replicas": [2, 1], "leader": 1})
    change = PartitionChange(state, "t", ID, 0, state.image.topics["t"].partitions[0])
    change.election = PREFERRED
    record = change.build()
    assert record is not None
    assert record[0].leader == 0
    stays = PartitionChange(state, "t", ID, 1, state.image.topics["t"].partitions[1])
    stays.election = UNCLEAN
    assert stays.build() is None, "the leader is fine"


# -- ElectLeaders


def elect(state: Any, kind: int, topics: list[tuple[str, list[int]]] | None, version: int = 2) -> Any:
    m = elect_leaders
    request = m.ElectLeadersRequest(
        election_type=kind,
        topic_partitions=None
        if topics is None
        else [m.TopicPartitions(topic=name, partitions=indexes) for name, indexes in topics],
    )
    return elections.elect_leaders(state, request, version)


def test_elect_leaders_answers_per_partition() -> None:
    state = with_topic(
        new_state(3, fenced=[2]),
        {"replicas": [0, 1], "leader": 0},
        {"replicas": [0, 1], "leader": 1},
        {"replicas": [2, 1], "isr": [1], "leader": 1},
        {"replicas": [2], "isr": [2], "leader": -1},
    )
    decision = elect(state, 0, [("t", [0, 1, 2, 3, 9]), ("x", [0])])
    by_topic = {
        r.topic: {p.partition_id: p for p in r.partition_result} for r in decision.response.replica_election_results
    }
    assert {index: ErrorCode(p.error_code).name for index, p in by_topic["t"].items()} == {
        0: "ELECTION_NOT_NEEDED",
        1: "NONE",
        2: "PREFERRED_LEADER_NOT_AVAILABLE",
        3: "PREFERRED_LEADER_NOT_AVAILABLE",
        9: "UNKNOWN_TOPIC_OR_PARTITION",
    }
    assert by_topic["t"][9].error_message == "No such partition as t-9"
    assert by_topic["x"][0].error_message == "No such topic as x"
    assert by_topic["t"][1].error_message is None
    assert [r.partition_id for r, _ in decision.records] == [1]


def test_electing_everything_leaves_out_what_is_fine() -> None:
    state = with_topic(new_state(2), {"replicas": [0, 1]}, {"replicas": [0, 1], "leader": 1})
    decision = elect(state, 0, None)
    [result] = decision.response.replica_election_results
    assert [(p.partition_id, p.error_code) for p in result.partition_result] == [(1, 0)]


def test_unclean_election() -> None:
    state = with_topic(
        new_state(2, fenced=[0]),
        {"replicas": [0, 1], "isr": [0], "leader": -1},
        {"replicas": [0], "isr": [0], "leader": -1},
    )
    decision = elect(state, 1, [("t", [0, 1])])
    [result] = decision.response.replica_election_results
    assert [ErrorCode(p.error_code).name for p in result.partition_result] == ["NONE", "ELIGIBLE_LEADERS_NOT_AVAILABLE"]
    assert changed(state, decision.records).leader == 1
    with pytest.raises(KafkaError, match="Unknown election type 7"):
        elect(state, 7, None)


def test_rebalancing_is_bounded() -> None:
    partitions = [{"replicas": [0, 1], "leader": 1}] * 5
    state = with_topic(new_state(2, elections_max=3), *partitions)
    decision = elections.balance_leaders(state)
    assert (len(decision.records), decision.response) == (3, True)
    replay(state, decision.records)
    decision = elections.balance_leaders(state)
    assert (len(decision.records), decision.response) == (2, False)


# -- AlterPartition


def alter(state: Any, broker: int = 0, version: int = 3, broker_epoch: int | None = None, **fields: Any) -> Any:
    m = alter_partition
    in_sync = fields.pop("isr", [0, 1])
    data = m.RequestPartitionData(
        partition_index=fields.pop("index", 0),
        new_isr=[b for b in in_sync if not isinstance(b, tuple)],
        new_isr_with_epochs=[
            m.BrokerState(broker_id=b[0], broker_epoch=b[1]) if isinstance(b, tuple) else m.BrokerState(broker_id=b)
            for b in in_sync
        ],
        **fields,
    )
    topic_id = b"t" * 16
    request = m.AlterPartitionRequest(
        broker_id=broker,
        broker_epoch=100 + broker if broker_epoch is None else broker_epoch,
        topics=[m.RequestTopicData(topic_id=topic_id, partitions=[data])],
    )
    decision = isr_proposals.alter_partition(state, request, version)
    return decision, decision.response.topics[0].partitions[0]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"isr": [0]}, "NONE"),
        ({"index": 4}, "UNKNOWN_TOPIC_OR_PARTITION"),
        ({"leader_epoch": 4}, "FENCED_LEADER_EPOCH"),
        ({"leader_epoch": 6}, "NOT_CONTROLLER"),
        ({"partition_epoch": 6}, "INVALID_UPDATE_VERSION"),
        ({"partition_epoch": 8}, "NOT_CONTROLLER"),
        ({"broker": 1}, "INVALID_REQUEST"),
        ({"isr": [0, 5]}, "INVALID_REQUEST"),
        ({"isr": [1]}, "INVALID_REQUEST"),
        ({"isr": []}, "INVALID_REQUEST"),
        ({"isr": [0, 0]}, "INVALID_REQUEST"),
        ({"isr": [0], "leader_recovery_state": 1}, "INVALID_REQUEST"),
        ({"isr": [0, 2]}, "INELIGIBLE_REPLICA"),
        ({"isr": [(0, 100), (1, 99)]}, "INELIGIBLE_REPLICA"),
        ({"isr": [(0, 100), (1, 101)]}, "NONE"),
    ],
)
def test_alter_partition(fields: dict[str, Any], code: str) -> None:
    state = with_topic(
        new_state(3, fenced=[2]),
        {"replicas": [0, 1, 2], "isr": [0, 1], "leader_epoch": 5, "partition_epoch": 7},
    )
    asked = {"leader_epoch": 5, "partition_epoch": 7, **fields}
    decision, answer = alter(state, **asked)
    assert ErrorCode(answer.error_code).name == code
    if code != "NONE":
        assert decision.records == []


def test_alter_partition_returns_the_new_state_and_stale_brokers_are_refused() -> None:
    state = with_topic(new_state(2), {"replicas": [0, 1]})
    decision, answer = alter(state, isr=[0], version=2, leader_epoch=0, partition_epoch=0)
    assert (answer.isr, answer.leader_epoch, answer.partition_epoch, answer.leader_id) == ([0], 0, 1, 0)
    assert len(decision.records) == 1
    with pytest.raises(KafkaError) as refused:
        alter(state, broker_epoch=1, leader_epoch=0, partition_epoch=0)
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


# -- reassignment


def reassign(state: Any, replicas: list[int] | None, index: int = 0, name: str = "t", **options: Any) -> Any:
    m = alter_partition_reassignments
    request = m.AlterPartitionReassignmentsRequest(
        topics=[
            m.ReassignableTopic(
                name=name, partitions=[m.ReassignablePartition(partition_index=index, replicas=replicas)]
            )
        ],
        **options,
    )
    decision = reassignments.alter_partition_reassignments(state, request, 1)
    return decision, decision.response.responses[0].partitions[0]


def test_a_move_waits_for_the_new_replicas_and_then_drops_the_old() -> None:
    state = with_topic(new_state(3), {"replicas": [0, 1]})
    decision, answer = reassign(state, [1, 2])
    assert (answer.error_code, answer.error_message) == (0, None)
    replay(state, decision.records)
    moving = state.image.topics["t"].partitions[0]
    assert (moving.replicas, moving.adding, moving.removing) == ((1, 2, 0), (2,), (0,))
    listed = reassignments.list_partition_reassignments(
        state, list_partition_reassignments.ListPartitionReassignmentsRequest(topics=None)
    ).response.topics
    assert [(t.name, t.partitions[0].replicas) for t in listed] == [("t", [1, 2, 0])]
    # The leader reports the new replica in sync: the move completes, and the leader is one that stays.
    decision, answer = alter(state, isr=[0, 1, 2], leader_epoch=0, partition_epoch=1)
    assert answer.error_code == ErrorCode.NEW_LEADER_ELECTED
    replay(state, decision.records)
    done = state.image.topics["t"].partitions[0]
    assert (done.replicas, done.adding, done.removing, done.isr, done.leader) == ((1, 2), (), (), (1, 2), 1)
    assert done.directories == (broker_directory(1), broker_directory(2))


def test_a_replica_that_is_moved_away_is_not_eligible_when_it_comes_back() -> None:
    """Found by the simulator: broker 0 deleted its log, got the replica back empty, and was elected for having been in
    sync once."""
    away = {"replicas": [0, 1], "isr": [0], "eligible_leader_replicas": [1]}
    state = with_topic(new_state(3), away, min_insync_replicas="2")
    replay(state, reassign(state, [1, 2])[0].records)
    replay(state, alter(state, isr=[0, 2], leader_epoch=0, partition_epoch=1)[0].records)
    moved = state.image.topics["t"].partitions[0]
    assert (moved.replicas, moved.isr, moved.elr) == ((1, 2), (2,), (1,))
    replay(state, reassign(state, [2, 0])[0].records)
    replay(state, elections.leader_and_isr_updates(state, elections.with_replica_in_isr(state, 2), remove=2))
    assert state.image.topics["t"].partitions[0].leader == 1


def test_a_move_can_be_cancelled() -> None:
    state = with_topic(new_state(3), {"replicas": [0, 1]})
    _, answer = reassign(state, None)
    assert ErrorCode(answer.error_code).name == "NO_REASSIGNMENT_IN_PROGRESS"
    replay(state, reassign(state, [1, 2])[0].records)
    replay(state, reassign(state, None)[0].records)
    back = state.image.topics["t"].partitions[0]
    assert (sorted(back.replicas), back.adding, back.removing) == ([0, 1], (), ())


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([0, 1], [0, 1, 2], ((0, 1, 2), (), ())),  # what was to go stays
        ([0, 1, 3], [0, 1, 2], ((0, 1, 2, 3), (), (3,))),  # what was to come does not
        ([0, 1, 3], [3, 0], ((3, 0, 1, 2), (3,), (1, 2))),  # what was to come still has to
    ],
)
def test_a_move_gives_way_to_the_next(first: list[int], second: list[int], expected: Any) -> None:
    state = with_topic(new_state(4), {"replicas": [0, 1, 2], "isr": [0]})
    replay(state, reassign(state, first)[0].records)
    replay(state, reassign(state, second)[0].records)
    moving = state.image.topics["t"].partitions[0]
    assert (moving.replicas, moving.adding, moving.removing) == expected


@pytest.mark.parametrize(
    ("replicas", "options", "code"),
    [
        ([], {}, "INVALID_REPLICA_ASSIGNMENT"),
        ([9], {}, "INVALID_REPLICA_ASSIGNMENT"),
        ([1, 1], {}, "INVALID_REPLICA_ASSIGNMENT"),
        ([1], {"allow_replication_factor_change": False}, "INVALID_REPLICATION_FACTOR"),
        ([1, 2], {"index": 3}, "UNKNOWN_TOPIC_OR_PARTITION"),
        ([1, 2], {"name": "x"}, "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_reassignment_refusals(replicas: list[int], options: dict[str, Any], code: str) -> None:
    state = with_topic(new_state(3), {"replicas": [0, 1]})
    decision, answer = reassign(state, replicas, **options)
    assert ErrorCode(answer.error_code).name == code
    assert decision.records == []
