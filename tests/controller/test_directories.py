"""Which directory holds a replica, and what a replica is worth whose directory is lost."""

from __future__ import annotations

from typing import Any

import pytest
from pylogd.controller.decide import brokers, directories
from pylogd.controller.state import ControllerState
from pylogd.metadata.registrations import RECOVERING, Partition
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages import assign_replicas_to_dirs
from pylogd.protocol.uuids import UNASSIGNED_DIRECTORY
from support.controllers import broker_directory, new_state, registration, replay, with_topic

TOPIC_ID = b"t" * 16
NEW_DISK = b"new disk" * 2


def assign(
    state: ControllerState, directory: bytes, *indexes: int, broker_id: int = 0, topic_id: bytes = TOPIC_ID
) -> list[str]:
    m = assign_replicas_to_dirs
    parts = [m.RequestPartitionData(partition_index=index) for index in indexes]
    topics = [m.RequestTopicData(topic_id=topic_id, partitions=parts)]
    request = m.AssignReplicasToDirsRequest(
        broker_id=broker_id,
        broker_epoch=state.image.brokers[broker_id].epoch,
        directories=[m.RequestDirectoryData(id=directory, topics=topics)],
    )
    decision = directories.assign_replicas_to_dirs(state, request)
    replay(state, decision.records)
    return [ErrorCode(p.error_code).name for p in decision.response.directories[0].topics[0].partitions]


def test_assigning_replicas_to_directories() -> None:
    state = new_state(2, directories=2)
    with_topic(state, *({"replicas": [replica], "directories": [UNASSIGNED_DIRECTORY]} for replica in (0, 1)))
    assert assign(state, broker_directory(0, 1), 0, 1, 7) == [
        "NONE",
        "NOT_LEADER_OR_FOLLOWER",
        "UNKNOWN_TOPIC_OR_PARTITION",
    ]
    assert state.image.topics["t"].partitions[0].directories == (broker_directory(0, 1),)
    assert assign(state, broker_directory(0, 1), 0, topic_id=b"x" * 16) == ["UNKNOWN_TOPIC_ID"]
    # A directory that has failed meanwhile: the replica is there, and offline.
    assert assign(state, b"gone" * 4, 0) == ["NONE"]
    assert state.image.topics["t"].partitions[0].leader == -1


# -- lost disks. Partition t-0 has replicas on all three brokers, min.insync.replicas is 2.


def come_back(state: ControllerState, broker_id: int, *log_dirs: bytes, clean: bool = False) -> None:
    """Another process of the broker registers and is unfenced."""
    previous = state.image.brokers[broker_id].epoch if clean else -1
    request = registration(broker_id, log_dirs=list(log_dirs), previous_broker_epoch=previous)
    replay(state, brokers.register_broker(state, request, 4, 0).records)
    replay(state, brokers._unfence_records(state, state.image.brokers[broker_id]))


def go(state: ControllerState, broker_id: int) -> None:
    replay(state, brokers.fence_records(state, state.image.brokers[broker_id]))


def partition(state: ControllerState) -> Partition:
    return state.image.topics["t"].partitions[0]


def standing(state: ControllerState) -> tuple[Any, ...]:
    p = partition(state)
    return p.leader, p.isr, p.elr, p.last_known_elr


@pytest.fixture
def state() -> ControllerState:
    """Broker 0 leads, 1 is in sync, 2 lags behind."""
    return with_topic(new_state(3), {"replicas": [0, 1, 2], "isr": [0, 1]}, min_insync_replicas="2")


def test_a_last_leader_with_another_disk_gives_way_to_who_was_eligible_until_it_crashed(state: ControllerState) -> None:
    go(state, 1)
    come_back(state, 1, broker_directory(1))
    assert standing(state) == (0, (0,), (), (1,))
    # Nobody saw broker 0 go; it is the last leader, and might have everything.
    come_back(state, 0, NEW_DISK)
    assert standing(state) == (-1, (), (), (0, 1))
    assert assign(state, NEW_DISK, 0) == ["NONE"]
    assert standing(state) == (1, (1,), (), ())
    assert partition(state).leader_recovery_state == RECOVERING


def test_a_last_leader_with_its_old_disk_leads_again(state: ControllerState) -> None:
    go(state, 1)
    come_back(state, 1, broker_directory(1))
    go(state, 0)
    assert standing(state) == (-1, (), (0,), (0, 1))
    go(state, 2)
    come_back(state, 2, broker_directory(2))
    assert standing(state) == (-1, (), (0,), (0, 1))
    come_back(state, 0, broker_directory(0))
    assert standing(state) == (0, (0,), (), ())
    assert partition(state).leader_recovery_state == RECOVERING


def test_a_crashed_replica_is_remembered_no_longer_than_it_matters(state: ControllerState) -> None:
    go(state, 1)
    come_back(state, 1, broker_directory(1))
    assert partition(state).last_known_elr == (1,)
    change = directories.PartitionChange(state, "t", TOPIC_ID, 0, partition(state))
    change.isr = [0, 2]
    record = change.build()
    assert record is not None
    replay(state, [record])
    assert standing(state) == (0, (0, 2), (), ())


def test_a_clean_shutdown_does_not_vouch_for_a_lost_directory(state: ControllerState) -> None:
    go(state, 1)
    come_back(state, 1, NEW_DISK, clean=True)
    assert standing(state) == (0, (0,), (), (1,))
    # The directory may only be missing for now; what is made anew elsewhere is forgotten.
    assign(state, NEW_DISK, 0, broker_id=1)
    assert standing(state) == (0, (0,), (), ())
    go(state, 0)
    assert standing(state) == (-1, (), (0,), (0,))


def test_nobody_leads_when_everything_acknowledged_is_lost_and_others_have_a_part(state: ControllerState) -> None:
    replay(state, brokers.shutdown_records(state, 1, clean=False))
    come_back(state, 0, NEW_DISK)
    assign(state, NEW_DISK, 0)
    assert standing(state) == (1, (1,), (), ())
    come_back(state, 1, NEW_DISK[::-1])
    assign(state, NEW_DISK[::-1], 0, broker_id=1)
    assert standing(state) == (-1, (), (), ())


def test_the_only_replica_begins_anew_on_another_disk() -> None:
    state = with_topic(new_state(1), {"replicas": [0]})
    come_back(state, 0, NEW_DISK)
    assert standing(state) == (-1, (), (), (0,))
    assign(state, NEW_DISK, 0)
    assert standing(state) == (0, (0,), (), ())
