"""Brokers join, stay and leave: registration, heartbeats, fencing, directories."""

from __future__ import annotations

from typing import Any

import pytest
from pylogd.controller.decide import brokers
from pylogd.controller.heartbeats import Heartbeats
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages import (
    broker_heartbeat,
    broker_registration,
    controller_registration,
    metadata_records,
    unregister_broker,
)
from support.controllers import broker_directory, new_state, registration, replay, with_topic


def register(state: Any, request: Any, now_ms: int = 0) -> Any:
    return brokers.register_broker(state, request, 4, now_ms)


def test_a_new_broker_is_fenced_and_its_epoch_is_the_offset() -> None:
    state = new_state(0)
    state.next_offset = 77
    decision = register(state, registration(3))
    assert decision.response.broker_epoch == 77
    [(record, version)] = decision.records
    assert (record.broker_epoch, record.fenced, version) == (77, True, 4)
    replay(state, decision.records)
    assert state.image.brokers[3].registered_at == 77


def feature(highest: int) -> Any:
    return broker_registration.Feature(name="metadata.version", min_supported_version=7, max_supported_version=highest)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"cluster_id": "other"}, "INCONSISTENT_CLUSTER_ID"),
        ({"is_migrating_zk_broker": True}, "BROKER_ID_NOT_REGISTERED"),
        ({"log_dirs": []}, "INVALID_REGISTRATION"),
        ({"log_dirs": [bytes(15) + b"\x01"]}, "INVALID_REGISTRATION"),
        ({"log_dirs": [b"a" * 16, b"a" * 16]}, "INVALID_REGISTRATION"),
        ({"log_dirs": [broker_directory(0)]}, "INVALID_REGISTRATION"),
        ({"features": []}, "INVALID_REGISTRATION"),
        ({"features": [feature(29)]}, "UNSUPPORTED_VERSION"),  # the cluster is at 30
        ({"features": [feature(30)]}, "UNSUPPORTED_VERSION"),  # and has other features finalized too
    ],
)  # fmt: skip
def test_registrations_that_are_refused(fields: dict[str, Any], code: str) -> None:
    with pytest.raises(KafkaError) as refused:
        register(new_state(1), registration(5, **fields))
    assert refused.value.code.name == code


def test_a_double_is_refused_until_the_session_ends() -> None:
    state = new_state(1)
    state.heartbeats.touch(0, 100, 1000)
    with pytest.raises(KafkaError) as refused:
        register(state, registration(0), now_ms=2000)
    assert refused.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert register(state, registration(0), now_ms=20_000).response.broker_epoch == state.next_offset


def test_the_same_incarnation_keeps_epoch_and_state() -> None:
    state = new_state(1)
    decision = register(state, registration(0, incarnation=bytes(16)))
    [(record, _)] = decision.records
    assert (record.broker_epoch, record.fenced) == (100, False)


@pytest.mark.parametrize(("previous", "elr"), [(100, (0,)), (99, ())])
def test_how_it_stopped_decides_whether_it_stays_eligible(previous: int, elr: tuple[int, ...]) -> None:
    state = new_state(1)
    m = metadata_records
    partition = m.PartitionRecord(
        partition_id=0, topic_id=b"t" * 16, replicas=[0], isr=[0], leader=0, leader_epoch=0, partition_epoch=0,
        directories=[broker_directory(0)],
    )  # fmt: skip
    replay(state, [(m.TopicRecord(name="t", topic_id=b"t" * 16), 0), (partition, 2)])
    decision = register(state, registration(0, previous_broker_epoch=previous))
    assert type(decision.records[-1][0]).__name__ == "RegisterBrokerRecord"
    replay(state, decision.records)
    after = state.image.topics["t"].partitions[0]
    assert (after.leader, after.isr, after.elr, after.last_known_elr) == (-1, (), elr, (0,))


# -- heartbeats


def beat(state: Any, broker_id: int = 0, **fields: Any) -> Any:
    given = {"broker_id": broker_id, "broker_epoch": 100 + broker_id, "current_metadata_offset": 1000, **fields}
    decision, shutting_down = brokers.heartbeat(state, broker_heartbeat.BrokerHeartbeatRequest(**given))
    replay(state, decision.records)
    state.heartbeats.heard(broker_id, -1 if decision.records else given["current_metadata_offset"])
    if shutting_down:
        state.heartbeats.begin_shutdown(broker_id, state.next_offset - 1)
    return decision.response, [type(record).__name__ for record, _ in decision.records]


def test_unfenced_once_it_has_seen_its_registration() -> None:
    state = new_state(1, fenced=[0])
    registered_at = state.image.brokers[0].registered_at
    reply, records = beat(state, current_metadata_offset=registered_at - 1)
    assert (reply.is_fenced, reply.is_caught_up, records) == (True, False, [])
    reply, records = beat(state, current_metadata_offset=registered_at, want_fence=True)
    assert (reply.is_fenced, reply.is_caught_up, records) == (True, True, [])
    reply, records = beat(state, current_metadata_offset=registered_at)
    assert (reply.is_fenced, records) == (False, ["BrokerRegistrationChangeRecord"])
    assert beat(state)[1] == []


def test_stale_epochs_are_refused() -> None:
    for fields in ({"broker_epoch": 1}, {"broker_id": 9, "broker_epoch": 109}):
        with pytest.raises(KafkaError) as refused:
            beat(new_state(1), **fields)
        assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_a_broker_without_leaderships_may_stop_at_once() -> None:
    reply, records = beat(new_state(1), want_shut_down=True)
    assert (reply.should_shut_down, reply.is_fenced) == (True, True)
    assert records == ["BrokerRegistrationChangeRecord"]


def test_controlled_shutdown_waits_for_the_others() -> None:
    state = new_state(2)
    m = metadata_records
    partition = m.PartitionRecord(
        partition_id=0, topic_id=b"t" * 16, replicas=[0, 1], isr=[0, 1], leader=0, leader_epoch=0, partition_epoch=0,
        directories=[broker_directory(0), broker_directory(1)],
    )  # fmt: skip
    replay(state, [(m.TopicRecord(name="t", topic_id=b"t" * 16), 0), (partition, 2)])
    beat(state, 1, current_metadata_offset=3)
    reply, records = beat(state, 0, want_shut_down=True)
    assert (reply.should_shut_down, reply.is_fenced) == (False, False)
    assert records == ["BrokerRegistrationChangeRecord", "PartitionChangeRecord"]
    assert state.image.topics["t"].partitions[0].leader == 1
    assert not beat(state, 0, want_shut_down=True)[0].should_shut_down, "broker 1 has not seen it yet"
    beat(state, 1, current_metadata_offset=state.next_offset)
    reply, records = beat(state, 0, want_shut_down=True)
    assert (reply.should_shut_down, records) == (True, ["BrokerRegistrationChangeRecord"])
    assert state.image.brokers[0].fenced


def test_a_failed_directory_takes_its_replicas_out() -> None:
    state = new_state(1, directories=2)
    m = metadata_records
    records: list[Any] = [(m.TopicRecord(name="t", topic_id=b"t" * 16), 0)]
    for index in range(2):
        fields = {"replicas": [0], "isr": [0], "leader": 0, "leader_epoch": 0, "partition_epoch": 0}
        directory = [broker_directory(0, index)]
        records.append((m.PartitionRecord(partition_id=index, topic_id=b"t" * 16, directories=directory, **fields), 2))
    replay(state, records)
    _, names = beat(state, offline_log_dirs=[broker_directory(0, 1)])
    assert names == ["PartitionChangeRecord", "BrokerRegistrationChangeRecord"]
    assert [p.leader for p in state.image.topics["t"].partitions] == [0, -1]
    assert state.image.brokers[0].directories == (broker_directory(0, 0),)
    assert beat(state, offline_log_dirs=[broker_directory(0, 1)])[1] == [], "said once is enough"


def test_nobody_waits_for_a_broker_that_is_back_without_its_directory() -> None:
    state = new_state(2, fenced=[0], directories=2, features={})
    with_topic(
        state,
        {"replicas": [0, 1], "isr": [0], "leader": -1, "directories": [broker_directory(0, 1), broker_directory(1)]},
        unclean_leader_election_enable="true",
    )
    state.heartbeats.activate(state.image, 0)
    assert list(state.heartbeats.awaited) == [0]
    beat(state, offline_log_dirs=[broker_directory(0, 1)])
    assert not state.heartbeats.awaited
    after = state.image.topics["t"].partitions[0]
    assert (after.leader, after.isr) == (1, (1,))


def test_cordoned_directories_are_recorded_once() -> None:
    state = new_state(1, directories=2)
    assert beat(state, cordoned_log_dirs=None)[1] == []
    assert beat(state, cordoned_log_dirs=[])[1] == ["BrokerRegistrationChangeRecord"]
    assert beat(state, cordoned_log_dirs=[])[1] == []
    beat(state, cordoned_log_dirs=[broker_directory(0, i) for i in range(2)])
    assert not state.image.brokers[0].has_uncordoned_directory()


# -- fencing


def test_sessions_run_out_one_at_a_time() -> None:
    state = new_state(3)
    state.heartbeats.activate(state.image, 0)
    state.heartbeats.touch(1, 101, 5000)
    assert state.heartbeats.expired(9000) == []
    fenced = []
    for broker_id, epoch in state.heartbeats.expired(9001):
        decision = brokers.fence_broker(state, broker_id, epoch)
        replay(state, decision.records)
        fenced.append(decision.records[-1][0].broker_id)
        state.heartbeats.forget_session(broker_id, epoch)
    assert state.heartbeats.expired(9001) == []
    assert fenced == [0, 2]
    assert [b.id for b in state.image.brokers.values() if b.fenced] == [0, 2]


def test_an_expired_session_of_an_older_epoch_fences_nobody() -> None:
    state = new_state(1)
    state.heartbeats.touch(0, 55, 0)
    assert state.heartbeats.expired(100_000) == [(0, 55)]
    assert brokers.fence_broker(state, 0, 55).records == []
    assert not state.image.brokers[0].fenced


def test_the_broker_of_a_restarted_process_is_not_its_own_double() -> None:
    state = new_state(2)
    heartbeats = Heartbeats()
    heartbeats.activate(state.image, 0, gone=0)
    assert not heartbeats.has_session(0, 100, 1)
    assert heartbeats.has_session(1, 101, 1)


def test_unregister() -> None:
    state = new_state(2)
    request = unregister_broker.UnregisterBrokerRequest(broker_id=1)
    decision = brokers.unregister_broker(state, request)
    assert [type(r).__name__ for r, _ in decision.records] == ["UnregisterBrokerRecord"]
    replay(state, decision.records)
    with pytest.raises(KafkaError, match="Broker ID 1 is not currently registered") as refused:
        brokers.unregister_broker(state, request)
    assert refused.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_controllers_register_from_metadata_version_15_on() -> None:
    request = controller_registration.ControllerRegistrationRequest(controller_id=4, incarnation_id=b"i" * 16)
    decision = brokers.register_controller(new_state(0), request)
    assert decision.records[0][0].controller_id == 4
    with pytest.raises(KafkaError):
        brokers.register_controller(new_state(0, metadata_version=14, features={}), request)
