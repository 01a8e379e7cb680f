"""Config changes: operations combined with what is set, and the rules that tie configs to features."""

from __future__ import annotations

from typing import Any

import pytest
from pylogd.controller.decide import configs
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages import alter_configs, incremental_alter_configs, metadata_records
from support.controllers import new_state, replay

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def prepared(**features: int) -> Any:
    state = new_state(1, features={name.replace("_", "."): level for name, level in features.items()})
    m = metadata_records
    replay(
        state,
        [
            (m.TopicRecord(name="t", topic_id=b"t" * 16), 0),
            (m.ConfigRecord(resource_type=TOPIC, resource_name="t", name="cleanup.policy", value="compact"), 0),
            (m.ConfigRecord(resource_type=BROKER, resource_name="", name="min.insync.replicas", value="1"), 0),
        ],
    )
    return state


def change(state: Any, *resources: tuple[int, str, list[tuple[str, int, str | None]]], **options: Any) -> Any:
    m = incremental_alter_configs
    request = m.IncrementalAlterConfigsRequest(
        resources=[
            m.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[m.AlterableConfig(name=k, config_operation=op, value=v) for k, op, v in operations],
            )
            for kind, name, operations in resources
        ],
        validate_only=options.pop("validate_only", False),
    )
    return configs.incremental_alter_configs(state, request, **options)


def answers(decision: Any) -> list[tuple[str, str | None]]:
    return [(ErrorCode(r.error_code).name, r.error_message) for r in decision.response.responses]


def records(decision: Any) -> list[tuple[Any, ...]]:
    return [(r.resource_type, r.resource_name, r.name, r.value) for r, _ in decision.records]


@pytest.mark.parametrize(
    ("operation", "value", "expected"),
    [
        (SET, "delete", "delete"),
        (DELETE, None, None),
        (APPEND, "delete", "compact,delete"),
        (APPEND, "compact", "unchanged"),
        (APPEND, ",", "unchanged"),
        (APPEND, "delete,,", "compact,delete"),
        (SUBTRACT, "compact", ""),
        (SUBTRACT, "delete", "unchanged"),
        (SET, "compact", "unchanged"),
    ],
)
def test_operations(operation: int, value: str | None, expected: str | None) -> None:
    decision = change(prepared(), (TOPIC, "t", [("cleanup.policy", operation, value)]))
    assert answers(decision) == [("NONE", None)]
    wanted = [] if expected == "unchanged" else [(TOPIC, "t", "cleanup.policy", expected)]
    assert records(decision) == wanted


def test_a_list_that_is_not_set_starts_from_its_default() -> None:
    state = new_state(1)
    replay(state, [(metadata_records.TopicRecord(name="t", topic_id=b"t" * 16), 0)])
    decision = change(state, (TOPIC, "t", [("cleanup.policy", APPEND, "compact")]))
    assert records(decision) == [(TOPIC, "t", "cleanup.policy", "delete,compact")]


@pytest.mark.parametrize(
    ("resource", "code", "message"),
    [
        ((TOPIC, "x", [("retention.ms", SET, "1")]), "UNKNOWN_TOPIC_OR_PARTITION", "The topic 'x' does not exist."),
        ((TOPIC, "t", [("nope", SET, "1")]), "INVALID_CONFIG", "Unknown topic config name: nope"),
        (
            (TOPIC, "t", [("retention.ms", APPEND, "1")]),
            "INVALID_CONFIG",
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        ((BROKER, "7", [("a", SET, "1")]), "BROKER_ID_NOT_REGISTERED", "No node with id 7 found."),
        ((BROKER, "x", [("a", SET, "1")]), "INVALID_REQUEST", "Invalid broker name x"),
        ((99, "x", []), "UNSUPPORTED_VERSION", "Unknown resource type 99."),
        ((LOGGER, "0", []), "INVALID_REQUEST", "Unexpected resource type BROKER_LOGGER."),
        ((TOPIC, "t", [("retention.ms", 9, "1")]), "INVALID_REQUEST", "Unknown operation type 9."),
        (
            (TOPIC, "t", [("retention.ms", SET, "1"), ("retention.ms", SET, "2")]),
            "INVALID_REQUEST",
            "Error due to duplicate config keys",
        ),
        (
            (TOPIC, "t", [("retention.ms", SET, "1" * 40_000)]),
            "INVALID_CONFIG",
            "The configuration value cannot be added because it exceeds the maximum value size of 32767 bytes.",
        ),
    ],
)
def test_refusals_leave_the_others_alone(resource: Any, code: str, message: str) -> None:
    decision = change(prepared(), resource, (GROUP, "g", [("a", SET, "1")]))
    assert sorted(answers(decision)) == sorted([(code, message), ("NONE", None)])
    assert records(decision) == [(GROUP, "g", "a", "1")]


def test_a_resource_named_twice_is_refused_once() -> None:
    decision = change(prepared(), (TOPIC, "t", []), (TOPIC, "t", []))
    assert answers(decision) == [("INVALID_REQUEST", "Duplicate resource.")]


def test_validate_only() -> None:
    decision = change(prepared(), (TOPIC, "t", [("retention.ms", SET, "1")]), validate_only=True)
    assert (answers(decision), decision.records) == ([("NONE", None)], [])


def test_broker_configs_are_written_even_when_unchanged() -> None:
    state = prepared()
    for _ in range(2):
        decision = change(state, (BROKER, "0", [("ssl.keystore.location", SET, "/k")]))
        assert len(decision.records) == 1
        replay(state, decision.records)


def test_min_insync_replicas_under_eligible_leader_replicas() -> None:
    state = new_state(1)
    m = metadata_records
    replay(state, [(m.TopicRecord(name="t", topic_id=b"t" * 16), 0)])
    assert "Broker-level" in str(answers(change(state, (BROKER, "0", [("min.insync.replicas", SET, "2")]))))
    assert "cannot be removed" in str(answers(change(state, (BROKER, "", [("min.insync.replicas", DELETE, None)]))))
    decision = change(
        state, (BROKER, "", [("min.insync.replicas", SET, "2")]), (TOPIC, "t", [("min.insync.replicas", SET, "2")])
    )
    assert [type(r).__name__ for r, _ in decision.records] == ["ConfigRecord", "ClearElrRecord"] * 2
    assert [r.topic_name for r, _ in decision.records if hasattr(r, "topic_name")] == ["", "t"]


def test_cordoned_directories_through_a_controller_may_only_shrink() -> None:
    state = new_state(1)
    replay(
        state,
        [
            (
                metadata_records.ConfigRecord(
                    resource_type=BROKER, resource_name="0", name="cordoned.log.dirs", value="/a, /b"
                ),
                0,
            )
        ],
    )
    fewer = (BROKER, "0", [("cordoned.log.dirs", SET, "/a")])
    more = (BROKER, "0", [("cordoned.log.dirs", SET, "/a,/c")])
    assert answers(change(state, fewer, forwarded=False)) == [("NONE", None)]
    assert answers(change(state, more, forwarded=False))[0][0] == "INVALID_CONFIG"
    assert answers(change(state, more, forwarded=True)) == [("NONE", None)]
    assert answers(change(new_state(1, metadata_version=29), more))[0][0] == "INVALID_CONFIG"


def test_legacy_alter_replaces_everything() -> None:
    m = alter_configs
    state = prepared()
    request = m.AlterConfigsRequest(
        resources=[
            m.AlterConfigsResource(
                resource_type=TOPIC, resource_name="t", configs=[m.AlterableConfig(name="retention.ms", value="5")]
            )
        ]
    )
    decision = configs.alter_configs(state, request)
    assert records(decision) == [(TOPIC, "t", "retention.ms", "5"), (TOPIC, "t", "cleanup.policy", None)]
    replay(state, decision.records)
    assert state.image.topic_config("t") == {"retention.ms": "5"}
