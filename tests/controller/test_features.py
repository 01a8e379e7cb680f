"""Feature levels: what may be raised, lowered and combined; and the ids producers get."""

from __future__ import annotations

from typing import Any

import pytest
from pylogd.controller.decide import features, producer_id_blocks
from pylogd.metadata import feature_levels
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages import allocate_producer_ids, metadata_records, update_features
from support.controllers import new_state, replay

UPGRADE, SAFE, UNSAFE = 1, 2, 3


def update(state: Any, *updates: tuple[str, int, int], version: int = 2, validate_only: bool = False) -> Any:
    m = update_features
    request = m.UpdateFeaturesRequest(
        feature_updates=[
            m.FeatureUpdateKey(
                feature=name, max_version_level=level, upgrade_type=kind, allow_downgrade=kind != UPGRADE
            )
            for name, level, kind in updates
        ],
        validate_only=validate_only,
    )
    return features.update_features(state, request, version)


def levels(decision: Any) -> list[tuple[str, int]]:
    return [(r.name, r.feature_level) for r, _ in decision.records if hasattr(r, "feature_level")]


def test_levels_go_up_and_down() -> None:
    state = new_state(1, features={"share.version": 1})
    decision = update(state, ("group.version", 1, UPGRADE), ("share.version", 0, SAFE))
    assert levels(decision) == [("group.version", 1), ("share.version", 0)]
    assert (decision.response.error_code, decision.response.error_message) == (0, None)
    replay(state, decision.records)
    assert state.image.features == {"group.version": 1}
    assert update(state, ("group.version", 0, SAFE), validate_only=True).records == []


@pytest.mark.parametrize(
    ("feature", "level", "kind", "reason"),
    [
        ("group.version", 1, 9, "The controller does not support the given upgrade type."),
        ("group.version", -1, UPGRADE, "A feature version cannot be less than 0."),
        ("group.version", 2, UPGRADE, "Local controller 0 only supports versions 0-1"),
        ("no.such", 1, UPGRADE, "Local controller 0 does not support this feature."),
        ("share.version", 0, UPGRADE, "Can't downgrade the version of this feature without setting the upgrade type"),
        ("group.version", 1, SAFE, "Can't downgrade to a newer version."),
        ("kraft.version", 0, SAFE, "Can't downgrade the version of this feature."),
        ("metadata.version", 31, UPGRADE, "Local controller 0 only supports versions 7-30"),
        ("metadata.version", 22, SAFE, "Refusing to perform the requested downgrade because it might delete metadata"),
        ("metadata.version", 22, UNSAFE, "Unsafe metadata downgrade is not supported in this version."),
    ],
)
def test_refusals(feature: str, level: int, kind: int, reason: str) -> None:
    state = new_state(1, features={"share.version": 1})
    decision = update(state, ("transaction.version", 1, UPGRADE), (feature, level, kind))
    assert decision.records == []
    assert decision.response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert decision.response.error_message.startswith("The update failed for all features since")
    assert reason in decision.response.error_message


def test_metadata_version_may_go_down_where_no_record_changed() -> None:
    state = new_state(0, metadata_version=29, features={})
    assert levels(update(state, ("metadata.version", 24, SAFE))) == [("metadata.version", 24)]
    assert levels(update(state, ("metadata.version", 30, UPGRADE))) == [("metadata.version", 30)]


def test_every_node_must_support_a_level() -> None:
    state = new_state(1, features={})
    record = metadata_records.RegisterControllerRecord(controller_id=9, incarnation_id=b"i" * 16)
    replay(state, [(record, 0)])
    assert "Controller 9 does not support" in update(state, ("group.version", 1, UPGRADE)).response.error_message
    state = new_state(1, features={})
    state.voters = (0, 5)
    assert "controller 5 has not registered" in update(state, ("group.version", 1, UPGRADE)).response.error_message
    state = new_state(1, features={})
    state.image.brokers[0].features.pop("group.version")
    assert "Broker 0 does not support" in update(state, ("group.version", 1, UPGRADE)).response.error_message


def test_enabling_eligible_leader_replicas_settles_min_insync_replicas() -> None:
    state = new_state(1, features={}, static_min_insync_replicas=2)
    m = metadata_records
    replay(state, [(m.ConfigRecord(resource_type=4, resource_name="0", name="min.insync.replicas", value="3"), 0)])
    decision = update(state, (feature_levels.ELR_VERSION, 1, UPGRADE))
    assert [(r.resource_name, r.value) for r, _ in decision.records[:2]] == [("", "2"), ("0", None)]
    assert levels(decision) == [(feature_levels.ELR_VERSION, 1)]
    too_old = new_state(1, metadata_version=22, features={})
    assert (
        "depends on metadata.version level 23"
        in update(too_old, (feature_levels.ELR_VERSION, 1, UPGRADE)).response.error_message
    )


@pytest.mark.parametrize(("version", "results"), [(0, ["group.version"]), (1, ["group.version"]), (2, [])])
def test_versions_0_and_1_answer_per_feature(version: int, results: list[str]) -> None:
    response = update(new_state(1, features={}), ("group.version", 1, UPGRADE), version=version).response
    assert [r.feature for r in response.results] == results


def test_default_levels_are_those_of_kafka_4_3() -> None:
    assert feature_levels.default_levels(30) == {
        "metadata.version": 30,
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "share.version": 1,
        "streams.version": 1,
        "transaction.version": 2,
    }
    assert feature_levels.default_levels(21) == {"metadata.version": 21}


def test_producer_ids_come_in_blocks_and_never_twice() -> None:
    state = new_state(1)
    request = allocate_producer_ids.AllocateProducerIdsRequest(broker_id=0, broker_epoch=100)
    starts = []
    for _ in range(3):
        decision = producer_id_blocks.allocate_producer_ids(state, request)
        starts.append((decision.response.producer_id_start, decision.response.producer_id_len))
        replay(state, decision.records)
    assert starts == [(0, 1000), (1000, 1000), (2000, 1000)]
    with pytest.raises(KafkaError):
        producer_id_blocks.allocate_producer_ids(
            state, allocate_producer_ids.AllocateProducerIdsRequest(broker_id=0, broker_epoch=1)
        )
    state.image.next_producer_id = (1 << 63) - 500
    with pytest.raises(KafkaError, match="Exhausted"):
        producer_id_blocks.allocate_producer_ids(state, request)
