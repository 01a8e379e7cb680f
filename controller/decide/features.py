"""UpdateFeatures: raising and lowering the finalized levels of features. All of a request's updates happen, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pylogd.controller.decide.configs import elr_safety_records
from pylogd.controller.state import ControllerState, Decision
from pylogd.metadata import feature_levels
from pylogd.metadata.record_batches import VersionedRecord
from pylogd.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from pylogd.protocol.messages.update_features import UpdateFeaturesRequest

UPGRADE = 1
SAFE_DOWNGRADE = 2
UNSAFE_DOWNGRADE = 3


def _invalid(feature: str, level: int, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_UPDATE_VERSION, f"Invalid update version {level} for feature {feature}. {reason}"
    )


def _not_supported(level: int, who: str, supported: tuple[int, int]) -> str | None:
    low, high = supported
    if low <= level <= high:
        return None
    return f"{who} does not support this feature." if high == 0 else f"{who} only supports versions {low}-{high}"


def _reason_not_supported(state: ControllerState, feature: str, level: int) -> str | None:
    """Why some node of the cluster cannot run at this level; None when all can."""
    node_id = state.settings.node_id
    local = feature_levels.SUPPORTED_FEATURES.get(feature, feature_levels.DISABLED)
    reason = _not_supported(level, f"Local controller {node_id}", local)
    if reason is not None:
        return reason
    for broker in state.image.brokers.values():
        reason = _not_supported(level, f"Broker {broker.id}", broker.features.get(feature, (0, 0)))
        if reason is not None:
            return reason
    if feature_levels.controller_registration_supported(state.image.metadata_version):
        for controller_id, record in state.image.controllers.items():
            if controller_id == node_id:
                continue
            ranges = {f.name: (f.min_supported_version, f.max_supported_version) for f in record.features}
            reason = _not_supported(level, f"Controller {controller_id}", ranges.get(feature, (0, 0)))
            if reason is not None:
                return reason
        for voter in state.voters:
            if voter != node_id and voter not in state.image.controllers:
                return f"controller {voter} has not registered, and may not support this feature"
    return None


def _level(state: ControllerState, feature: str) -> int:
    if feature == feature_levels.METADATA_VERSION:
        return state.image.metadata_version
    if feature == feature_levels.KRAFT_VERSION:
        return state.kraft_version
    return state.image.features.get(feature, 0)


def _update_metadata_version(state: ControllerState, level: int, unsafe: bool) -> VersionedRecord:
    from pylogd.protocol.messages.metadata_records import FeatureLevelRecord

    current = state.image.metadata_version
    if level not in feature_levels.METADATA_LEVELS:
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Invalid metadata.version {level}. Valid versions are from {feature_levels.METADATA_MIN} to "
            f"{feature_levels.METADATA_LATEST_UNSTABLE}.",
        )
    if level < current and feature_levels.metadata_changed(current, level):
        reason = (
            "Unsafe metadata downgrade is not supported in this version."
            if unsafe
            else "Refusing to perform the requested downgrade because it might delete metadata information."
        )
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Unsupported metadata.version downgrade from {current} to {level}. {reason}",
        )
    return FeatureLevelRecord(name=feature_levels.METADATA_VERSION, feature_level=level), 0


def _update(
    state: ControllerState, feature: str, level: int, kind: int, proposed: dict[str, int]
) -> list[VersionedRecord]:
    from pylogd.protocol.messages.metadata_records import FeatureLevelRecord

    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise _invalid(feature, level, "The controller does not support the given upgrade type.")
    current = _level(state, feature)
    if level < 0:
        raise _invalid(feature, level, "A feature version cannot be less than 0.")
    reason = _reason_not_supported(state, feature, level)
    if reason is not None:
        raise _invalid(feature, level, reason)
    if level < current and kind == UPGRADE:
        raise _invalid(
            feature,
            level,
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or "
            "unsafe downgrade.",
        )
    if level > current and kind != UPGRADE:
        raise _invalid(feature, level, "Can't downgrade to a newer version.")
    if feature == feature_levels.METADATA_VERSION:
        return [_update_metadata_version(state, level, kind == UNSAFE_DOWNGRADE)]
    if feature == feature_levels.KRAFT_VERSION:
        if level == current:
            return []
        if kind == UPGRADE:
            state.check_kraft_upgrade(level)
            return []
        raise _invalid(feature, level, "Can't downgrade the version of this feature.")
    if feature not in feature_levels.SUPPORTED_FEATURES:
        raise _invalid(feature, level, f"Feature {feature} not found.")
    for dependency, needed in feature_levels.DEPENDENCIES.get((feature, level), {}).items():
        if proposed.get(dependency, 0) < needed:
            raise _invalid(
                feature,
                level,
                f"{feature} could not be set to {level} because it depends on {dependency} level {needed}",
            )
    return [(FeatureLevelRecord(name=feature, feature_level=level), 0)]


def update_features(state: ControllerState, request: UpdateFeaturesRequest, version: int) -> Decision:
    """Versions 0 and 1 answer per feature, version 2 only as a whole."""
    from pylogd.protocol.messages import update_features as m

    updates = {
        # Version 0 knows only "allow downgrade": false is an upgrade, true a safe downgrade.
        u.feature: (u.max_version_level, u.upgrade_type if version >= 1 else SAFE_DOWNGRADE if u.allow_downgrade else 1)
        for u in request.feature_updates
    }
    proposed = {**state.image.finalized_features, **{name: level for name, (level, _) in updates.items()}}
    records: list[VersionedRecord] = []
    try:
        for feature, (level, kind) in updates.items():
            records += _update(state, feature, level, kind, proposed)
    except KafkaError as error:
        text = "The update failed for all features since the following feature had an error: " + error.message
        return Decision([], m.UpdateFeaturesResponse(error_code=error.code, error_message=text))
    kraft_version: int | None = None
    if request.validate_only:
        records = []
    else:
        if feature_levels.KRAFT_VERSION in updates:
            kraft_version = updates[feature_levels.KRAFT_VERSION][0]
        if updates.get(feature_levels.ELR_VERSION, (0, 0))[0] > 0:
            records = elr_safety_records(state) + records
    response = m.UpdateFeaturesResponse(error_code=ErrorCode.NONE, error_message=None)
    if version <= 1:
        response.results = [
            m.UpdatableFeatureResult(feature=u.feature, error_code=ErrorCode.NONE, error_message=None)
            for u in request.feature_updates
        ]
    return Decision(records, response, kraft_version=kraft_version)
