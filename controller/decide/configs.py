"""Config changes of topics, brokers, groups and client metrics: from operations to ConfigRecords.

What a value may be is asked of the injected rules; what is decided here is how operations combine with what is set, and
the rules that tie configs to features (min.insync.replicas while eligible leader replicas are on).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from pylogd.controller.state import ControllerState, Decision, client_message
from pylogd.metadata import feature_levels
from pylogd.metadata.delta import Resource
from pylogd.metadata.image import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from pylogd.metadata.record_batches import VersionedRecord
from pylogd.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from pylogd.protocol.messages.alter_configs import AlterConfigsRequest
    from pylogd.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

SET = 0
DELETE = 1
APPEND = 2
SUBTRACT = 3
OPERATION_NAMES = {SET: "SET", DELETE: "DELETE", APPEND: "APPEND", SUBTRACT: "SUBTRACT"}

MIN_ISR = "min.insync.replicas"
CORDONED = "cordoned.log.dirs"
VALUE_LENGTH_MAX = 32767
KNOWN_RESOURCES = (
    TOPIC_RESOURCE,
    BROKER_RESOURCE,
    BROKER_LOGGER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
)

Operation = tuple[int, str | None]


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)


def _record(resource: Resource, name: str, value: str | None) -> VersionedRecord:
    from pylogd.protocol.messages.metadata_records import ConfigRecord

    return ConfigRecord(resource_type=resource[0], resource_name=resource[1], name=name, value=value), 0


def changed_list(before: str | None, operation: int, given: str) -> str:
    """A list after APPEND or SUBTRACT; commas at the end of what is given say nothing."""
    parts = [part for part in (before or "").split(",") if part]
    changes = given.split(",")
    while given and changes and not changes[-1]:
        changes.pop()
    for change in changes:
        if operation == APPEND and change not in parts:
            parts.append(change)
        elif operation == SUBTRACT and change in parts:
            parts.remove(change)
    return ",".join(parts)


def _check_exists(state: ControllerState, resource: Resource) -> None:
    kind, name = resource
    if kind == TOPIC_RESOURCE and name not in state.image.topics:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    if kind == BROKER_RESOURCE and name:
        try:
            node_id = int(name)
        except ValueError:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Invalid broker name {name}") from None
        image = state.image
        if node_id not in image.brokers and node_id not in image.controllers and node_id not in state.voters:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {node_id} found.")


def _check_feature_rules(
    state: ControllerState,
    resource: Resource,
    name: str,
    value: str | None,
    current: Mapping[str, str],
    forwarded: bool,
) -> None:
    if resource[0] != BROKER_RESOURCE:
        return
    if name == MIN_ISR and state.image.elr_enabled:
        if resource[1]:
            raise _invalid(f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled.")
        if value is None:
            raise _invalid(f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled.")
    if name == CORDONED:
        if not feature_levels.cordoned_dirs_supported(state.image.metadata_version):
            raise _invalid(
                f"The {CORDONED} configuration value cannot be set because it requires metadata.version >= 4.3-IV0"
            )
        if not forwarded and value is not None and value.strip():
            known = [part.strip() for part in current.get(CORDONED, "").split(",")]
            if not {part.strip() for part in value.split(",")} <= set(known):
                raise _invalid(
                    f"When updating {CORDONED} via controllers,  the new value must be a subset of the current "
                    "configuration value."
                )


def _validate(
    state: ControllerState,
    resource: Resource,
    altered: Mapping[str, str | None],
    dropped: list[str],
    created: bool,
    forwarded: bool,
) -> None:
    current = state.image.config(*resource)
    values = dict(current)
    for name, value in altered.items():
        _check_feature_rules(state, resource, name, value, current, forwarded)
        if value is None:
            values.pop(name, None)
        elif len(value) > VALUE_LENGTH_MAX:
            raise _invalid(
                "The configuration value cannot be added because it exceeds the maximum value size of "
                f"{VALUE_LENGTH_MAX} bytes."
            )
        else:
            values[name] = value
    for name in dropped:
        _check_feature_rules(state, resource, name, None, current, forwarded)
        values.pop(name, None)
    state.rules.validate(resource[0], resource[1], values, current)
    if not created:
        _check_exists(state, resource)


def _clear_elr(state: ControllerState, records: list[VersionedRecord]) -> list[VersionedRecord]:
    """Who was eligible under one min.insync.replicas is not under another: forget and collect anew."""
    from pylogd.protocol.messages.metadata_records import ClearElrRecord

    if not state.image.elr_enabled:
        return []
    return [
        (ClearElrRecord(topic_name=record.resource_name if record.resource_type == TOPIC_RESOURCE else ""), 0)
        for record, _ in records
        if record.name == MIN_ISR
    ]


def incremental(
    state: ControllerState,
    resource: Resource,
    operations: Mapping[str, Operation],
    *,
    created: bool = False,
    forwarded: bool = True,
) -> list[VersionedRecord]:
    """Records of one resource's SET, DELETE, APPEND and SUBTRACT operations; KafkaError when refused."""
    current = state.image.config(*resource)
    altered: dict[str, str | None] = {}
    for key, (operation, given) in operations.items():
        before = current.get(key)
        value = before
        if operation == SET:
            value = given
        elif operation == DELETE:
            value = None
        elif operation in (APPEND, SUBTRACT):
            if not state.rules.is_list(resource[0], key):
                raise _invalid(f"Can't {OPERATION_NAMES[operation]} to key {key} because its type is not LIST.")
            stored = state.rules.default(resource[0], key) if before is None else before
            value = changed_list(stored, operation, given or "")
        # Brokers reload what their config names (certificates) even when it is set to the same value again.
        if value != before or resource[0] == BROKER_RESOURCE:
            altered[key] = value
    _validate(state, resource, altered, [], created, forwarded)
    records = [_record(resource, name, value) for name, value in altered.items()]
    return records + _clear_elr(state, records)


def replace(
    state: ControllerState, resource: Resource, values: Mapping[str, str | None], *, forwarded: bool = True
) -> list[VersionedRecord]:
    """Records that make `values` the whole config of a resource (the legacy AlterConfigs)."""
    current = state.image.config(*resource)
    altered = {
        name: value for name, value in values.items() if current.get(name) != value or resource[0] == BROKER_RESOURCE
    }
    dropped = [name for name in current if name not in values]
    _validate(state, resource, altered, dropped, False, forwarded)
    records = [_record(resource, name, value) for name, value in altered.items()]
    records += [_record(resource, name, None) for name in dropped]
    return records + _clear_elr(state, records)


class _Named(Protocol):
    resource_type: int
    resource_name: str


R = TypeVar("R", bound=_Named)


def _resources(resources: Sequence[R]) -> tuple[list[R], dict[Resource, tuple[ErrorCode, str]]]:
    """The resources to change, and those of a request that are not: of unknown type, or named twice."""
    counts: dict[Resource, int] = {}
    for resource in resources:
        key = (resource.resource_type, resource.resource_name)
        counts[key] = counts.get(key, 0) + 1
    refused: dict[Resource, tuple[ErrorCode, str]] = {}
    for key, count in counts.items():
        if key[0] not in KNOWN_RESOURCES:
            refused[key] = (ErrorCode.UNSUPPORTED_VERSION, f"Unknown resource type {key[0]}.")
        elif count > 1:
            refused[key] = (ErrorCode.INVALID_REQUEST, "Duplicate resource.")
        elif key[0] == BROKER_LOGGER_RESOURCE:
            refused[key] = (ErrorCode.INVALID_REQUEST, "Unexpected resource type BROKER_LOGGER.")
    chosen = [r for r in resources if (r.resource_type, r.resource_name) not in refused]
    return chosen, refused


def incremental_alter_configs(
    state: ControllerState, request: IncrementalAlterConfigsRequest, forwarded: bool = True
) -> Decision:
    """IncrementalAlterConfigs: every resource on its own, all accepted changes in one batch."""
    from pylogd.protocol.messages import incremental_alter_configs as m

    chosen, refused = _resources(request.resources)
    records: list[VersionedRecord] = []
    results: list[tuple[Resource, ErrorCode, str | None]] = [(key, *refusal) for key, refusal in refused.items()]
    for resource in chosen:
        key = (resource.resource_type, resource.resource_name)
        try:
            operations: dict[str, Operation] = {}
            for config in resource.configs:
                if config.config_operation not in OPERATION_NAMES:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operation type {config.config_operation}.")
                if config.name in operations:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
                operations[config.name] = (config.config_operation, config.value)
            records += incremental(state, key, operations, forwarded=forwarded)
            results.append((key, ErrorCode.NONE, None))
        except KafkaError as error:
            results.append((key, error.code, client_message(error)))
    response = m.IncrementalAlterConfigsResponse(
        responses=[
            m.AlterConfigsResourceResponse(
                resource_type=key[0], resource_name=key[1], error_code=code, error_message=message
            )
            for key, code, message in results
        ]
    )
    return Decision([] if request.validate_only else records, response)


def alter_configs(state: ControllerState, request: AlterConfigsRequest, forwarded: bool = True) -> Decision:
    """The legacy AlterConfigs: what is not named is removed."""
    from pylogd.protocol.messages import alter_configs as m

    chosen, refused = _resources(request.resources)
    records: list[VersionedRecord] = []
    results: list[tuple[Resource, ErrorCode, str | None]] = [(key, *refusal) for key, refusal in refused.items()]
    for resource in chosen:
        key = (resource.resource_type, resource.resource_name)
        try:
            values = {config.name: config.value for config in resource.configs}
            records += replace(state, key, values, forwarded=forwarded)
            results.append((key, ErrorCode.NONE, None))
        except KafkaError as error:
            results.append((key, error.code, client_message(error)))
    response = m.AlterConfigsResponse(
        responses=[
            m.AlterConfigsResourceResponse(
                resource_type=key[0], resource_name=key[1], error_code=code, error_message=message
            )
            for key, code, message in results
        ]
    )
    return Decision([] if request.validate_only else records, response)


def elr_safety_records(state: ControllerState) -> list[VersionedRecord]:
    """Before eligible leader replicas are enabled: one cluster-wide min.insync.replicas, and none per broker."""
    records: list[VersionedRecord] = []
    if MIN_ISR not in state.cluster_config():
        records.append(_record((BROKER_RESOURCE, ""), MIN_ISR, str(state.settings.static_min_insync_replicas)))
    for resource, values in state.image.configs.items():
        if resource[0] == BROKER_RESOURCE and resource[1] and MIN_ISR in values:
            records.append(_record(resource, MIN_ISR, None))
    return records
