"""Creating, deleting and growing topics: one table of requests and refusals each."""

from __future__ import annotations

from typing import Any

import pytest
from pylogd.controller.decide import topics
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages import create_partitions, create_topics, delete_topics
from support.controllers import broker_directory, new_state, replay


def topic(name: str, partitions: int = 1, replicas: int = 1, assignments: Any = (), **configs: str | None) -> Any:
    m = create_topics
    return m.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[m.CreatableReplicaAssignment(partition_index=i, broker_ids=list(b)) for i, b in assignments],
        configs=[m.CreatableTopicConfig(name=k.replace("_", "."), value=v) for k, v in configs.items()],
    )


def create(state: Any, *wanted: Any, version: int = 7, validate_only: bool = False) -> Any:
    request = create_topics.CreateTopicsRequest(topics=list(wanted), validate_only=validate_only)
    return topics.create_topics(state, request, version)


def names(records: list[Any]) -> list[str]:
    return [type(record).__name__ for record, _ in records]


def test_records_of_a_topic_in_kafkas_order() -> None:
    state = new_state(1)
    decision = create(state, topic("t", 2, retention_ms="5", cleanup_policy="compact"))
    assert names(decision.records) == ["TopicRecord", "ConfigRecord", "ConfigRecord"] + ["PartitionRecord"] * 2
    result = decision.response.topics[0]
    assert (result.error_code, result.error_message) == (ErrorCode.NONE, None)
    assert (result.num_partitions, result.replication_factor) == (2, 1)
    assert {c.name: (c.value, c.config_source) for c in result.configs}["retention.ms"] == ("5", 1)
    replay(state, decision.records)
    created = state.image.topics["t"]
    assert created.id == result.topic_id
    assert created.partitions[0].directories == (broker_directory(0),)
    assert [p.leader for p in created.partitions] == [0, 0]
    assert state.image.topic_config("t") == {"retention.ms": "5", "cleanup.policy": "compact"}


def test_before_version_5_no_configs_are_returned() -> None:
    result = create(new_state(1), topic("t"), version=4).response.topics[0]
    assert (result.configs, result.num_partitions, result.replication_factor) == ([], -1, -1)


def test_defaults_come_from_the_settings() -> None:
    state = new_state(3, num_partitions=4, replication_factor=2)
    decision = create(state, topic("t", -1, -1))
    replay(state, decision.records)
    assert [len(p.replicas) for p in state.image.topics["t"].partitions] == [2, 2, 2, 2]


def test_validate_only_answers_and_writes_nothing() -> None:
    decision = create(new_state(1), topic("t", 3), validate_only=True)
    assert decision.records == []
    assert decision.response.topics[0].num_partitions == 3


@pytest.mark.parametrize(
    ("wanted", "code", "message"),
    [
        (topic(""), "INVALID_TOPIC_EXCEPTION", "Topic name is invalid: the empty string is not allowed"),
        (topic("."), "INVALID_TOPIC_EXCEPTION", "Topic name is invalid: '.' is not allowed"),
        (topic(".."), "INVALID_TOPIC_EXCEPTION", "Topic name is invalid: '..' is not allowed"),
        (topic("a" * 250), "INVALID_TOPIC_EXCEPTION", None),
        (topic("a/b"), "INVALID_TOPIC_EXCEPTION", None),
        (topic("é"), "INVALID_TOPIC_EXCEPTION", None),
        (topic("have.it"), "TOPIC_ALREADY_EXISTS", "Topic 'have.it' already exists."),
        (topic("have_it"), "INVALID_TOPIC_EXCEPTION", "Topic 'have_it' collides with existing topic: have.it"),
        (topic("t", 0), "INVALID_PARTITIONS", "Number of partitions was set to an invalid non-positive value."),
        (topic("t", -2), "INVALID_PARTITIONS", "Number of partitions was set to an invalid non-positive value."),
        (
            topic("t", 1, 0),
            "INVALID_REPLICATION_FACTOR",
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (topic("t", 1, -2), "INVALID_REPLICATION_FACTOR", None),
        (
            topic("t", 1, 4),
            "INVALID_REPLICATION_FACTOR",
            "Unable to replicate the partition 4 time(s): The target replication factor of 4 cannot be reached "
            "because only 3 broker(s) are registered or some brokers have all their log directories cordoned.",
        ),
        (
            topic("t", retention_ms=None),
            "INVALID_CONFIG",
            "Null value not supported for topic configs: retention.ms",
        ),
        (topic("t", no_such="1"), "INVALID_CONFIG", "Unknown topic config name: no.such"),
        (
            topic("t", 1, -1, [(0, [0])]),
            "INVALID_REQUEST",
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            topic("t", -1, 1, [(0, [0])]),
            "INVALID_REQUEST",
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        ),
        (
            topic("t", -1, -1, [(0, [0]), (0, [1])]),
            "INVALID_REPLICA_ASSIGNMENT",
            "Found multiple manual partition assignments for partition 0",
        ),
        (
            topic("t", -1, -1, [(0, [0]), (2, [1])]),
            "INVALID_REPLICA_ASSIGNMENT",
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            topic("t", -1, -1, [(0, [])]),
            "INVALID_REPLICA_ASSIGNMENT",
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            topic("t", -1, -1, [(0, [9])]),
            "INVALID_REPLICA_ASSIGNMENT",
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (
            topic("t", -1, -1, [(0, [1, 1])]),
            "INVALID_REPLICA_ASSIGNMENT",
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            topic("t", -1, -1, [(0, [0, 1]), (1, [0])]),
            "INVALID_REPLICA_ASSIGNMENT",
            "The manual partition assignment includes a partition with 1 replica(s), but this is not consistent "
            "with previous partitions, which have 2 replica(s).",
        ),
        (
            topic("t", -1, -1, [(0, [2])]),
            "INVALID_REPLICA_ASSIGNMENT",
            "All brokers specified in the manual partition assignment for partition 0 are fenced or in controlled "
            "shutdown.",
        ),
        (
            topic("__cluster_metadata"),
            "INVALID_REQUEST",
            "Creation of internal topic __cluster_metadata is prohibited.",
        ),
    ],
)
def test_refusals(wanted: Any, code: str, message: str | None) -> None:
    state = new_state(3, fenced=[2])
    replay(state, create(state, topic("have.it")).records)
    decision = create(state, wanted, topic("good"))
    by_name = {result.name: result for result in decision.response.topics}
    refused = by_name[wanted.name]
    assert ErrorCode(refused.error_code).name == code
    assert message is None or refused.error_message == message
    assert by_name["good"].error_code == 0
    assert [r.name for r, _ in decision.records if hasattr(r, "name")] == ["good"]


def test_a_name_given_twice_is_refused_once_and_created_not_at_all() -> None:
    decision = create(new_state(1), topic("a"), topic("b"), topic("a"))
    assert [(r.name, r.error_code, r.error_message) for r in decision.response.topics] == [
        ("b", 0, None),
        ("a", ErrorCode.INVALID_REQUEST, "Duplicate topic name."),
    ]


def test_no_topic_without_a_live_broker() -> None:
    result = create(new_state(1, fenced=[0]), topic("t")).response.topics[0]
    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "All brokers are currently fenced" in result.error_message


def test_too_many_partitions_at_once_refuse_the_whole_request() -> None:
    with pytest.raises(KafkaError) as refused:
        create(new_state(1), topic("a", 6000), topic("b", 6000))
    assert refused.value.code is ErrorCode.POLICY_VIOLATION


def test_manual_assignment_leads_with_the_first_live_replica() -> None:
    state = new_state(3, fenced=[2])
    decision = create(state, topic("t", -1, -1, [(0, [2, 1]), (1, [0, 2])]))
    replay(state, decision.records)
    assert [(p.replicas, p.isr, p.leader) for p in state.image.topics["t"].partitions] == [
        ((2, 1), (1,), 1),
        ((0, 2), (0,), 0),
    ]


# -- delete


def delete(state: Any, *wanted: tuple[str | None, bytes], version: int = 6, legacy: list[str] = []) -> Any:  # noqa: B006
    m = delete_topics
    request = m.DeleteTopicsRequest(
        topics=[m.DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in wanted], topic_names=legacy
    )
    return topics.delete_topics(state, request, version)


ZERO = bytes(16)


def test_delete_by_name_and_by_id() -> None:
    state = new_state(1)
    replay(state, create(state, topic("a", retention_ms="1"), topic("b"), topic("c")).records)
    by_id = state.image.topics["b"].id
    decision = delete(state, ("a", ZERO), (None, by_id), ("x", ZERO), (None, b"n" * 16))
    answers = {(r.name, bytes(r.topic_id)): ErrorCode(r.error_code).name for r in decision.response.responses}
    assert answers == {
        ("a", state.image.topics["a"].id): "NONE",
        ("b", by_id): "NONE",
        ("x", ZERO): "UNKNOWN_TOPIC_OR_PARTITION",
        (None, b"n" * 16): "UNKNOWN_TOPIC_ID",
    }
    replay(state, decision.records)
    assert list(state.image.topics) == ["c"]
    assert state.image.configs == {}


def test_delete_refuses_contradictions() -> None:
    state = new_state(1)
    replay(state, create(state, topic("a"), topic("b")).records)
    a, b = (state.image.topics[name].id for name in "ab")
    decision = delete(
        state,
        (None, ZERO),
        ("a", a),
        ("b", ZERO),
        (None, b),
        ("d", ZERO),
        ("d", ZERO),
        (None, b"i" * 16),
        (None, b"i" * 16),
    )
    assert decision.records == []
    assert [(r.name, bytes(r.topic_id), r.error_message) for r in decision.response.responses] == [
        (None, ZERO, "Neither topic name nor id were specified."),
        ("a", a, "You may not specify both topic name and topic id."),
        ("d", ZERO, "Duplicate topic name."),
        (None, b"i" * 16, "Duplicate topic id."),
        ("b", b, "The provided topic name maps to an ID that was already supplied."),
    ]
    assert {r.error_code for r in decision.response.responses} == {ErrorCode.INVALID_REQUEST}


@pytest.mark.parametrize(("version", "code"), [(1, "INVALID_REQUEST"), (3, "TOPIC_DELETION_DISABLED")])
def test_delete_can_be_disabled(version: int, code: str) -> None:
    with pytest.raises(KafkaError) as refused:
        delete(new_state(1, delete_topic_enable=False), version=version, legacy=["a"])
    assert refused.value.code.name == code


def test_a_deleted_name_can_be_used_again_and_no_longer_collides() -> None:
    state = new_state(1)
    replay(state, create(state, topic("a.b")).records)
    replay(state, delete(state, ("a.b", ZERO)).records)
    assert create(state, topic("a_b")).response.topics[0].error_code == 0


# -- partitions


def grow(state: Any, *wanted: tuple[str, int, list[list[int]] | None], validate_only: bool = False) -> Any:
    m = create_partitions
    request = m.CreatePartitionsRequest(
        topics=[
            m.CreatePartitionsTopic(
                name=name,
                count=count,
                assignments=None
                if assignments is None
                else [m.CreatePartitionsAssignment(broker_ids=b) for b in assignments],
            )
            for name, count, assignments in wanted
        ],
        validate_only=validate_only,
    )
    return topics.create_partitions(state, request)


def test_growing_keeps_the_replication_factor() -> None:
    state = new_state(3)
    replay(state, create(state, topic("t", 2, 2)).records)
    decision = grow(state, ("t", 5, None))
    assert [r.partition_id for r, _ in decision.records] == [2, 3, 4]
    replay(state, decision.records)
    assert {len(p.replicas) for p in state.image.topics["t"].partitions} == {2}
    assert grow(state, ("t", 6, None), validate_only=True).records == []


@pytest.mark.parametrize(
    ("wanted", "code", "message"),
    [
        (("x", 2, None), "UNKNOWN_TOPIC_OR_PARTITION", None),
        (("t", 2, None), "INVALID_PARTITIONS", "Topic already has 2 partition(s)."),
        (
            ("t", 1, None),
            "INVALID_PARTITIONS",
            "The topic t currently has 2 partition(s); 1 would not be an increase.",
        ),
        (
            ("t", 4, [[0]]),
            "INVALID_REPLICA_ASSIGNMENT",
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            ("t", 3, [[0, 1]]),
            "INVALID_REPLICA_ASSIGNMENT",
            "The manual partition assignment includes a partition with 2 replica(s), but this is not consistent "
            "with previous partitions, which have 1 replica(s).",
        ),
        (("t", 3, [[7]]), "INVALID_REPLICA_ASSIGNMENT", None),
    ],
)
def test_growing_refusals(wanted: Any, code: str, message: str | None) -> None:
    state = new_state(2)
    replay(state, create(state, topic("t", 2)).records)
    decision = grow(state, wanted)
    result = decision.response.results[0]
    assert ErrorCode(result.error_code).name == code
    assert result.error_message == message or (code == "INVALID_REPLICA_ASSIGNMENT" and message is None)
    assert decision.records == []


def test_growing_a_topic_twice_in_one_request_is_refused() -> None:
    state = new_state(1)
    replay(state, create(state, topic("t")).records)
    results = grow(state, ("t", 2, None), ("t", 3, None)).response.results
    assert [(r.name, r.error_code, r.error_message) for r in results] == [
        ("t", ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    ]
