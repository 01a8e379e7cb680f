"""The broker's part of changing configs, shared by AlterConfigs and IncrementalAlterConfigs.

Changes of broker configs are checked here, where the configuration they have to fit is known; levels of loggers are
changed here and stored nowhere. Everything that passes goes to the controller, which checks topics, groups and
subscriptions and writes the records. The answers come back together in the order of the request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from pylogd.broker.network.context import RequestContext
from pylogd.config.broker import BROKER_KEYS
from pylogd.config.config_error import ConfigError
from pylogd.config.dynamic import usable, validate_change
from pylogd.controller.decide.configs import APPEND, DELETE, OPERATION_NAMES, SET, SUBTRACT, changed_list
from pylogd.metadata.image import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.runtime import log_lines

_FORWARDED: Final = (TOPIC_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE)

logger = logging.getLogger(__name__)

Result = tuple[int, str | None]
DONE: Final[Result] = (ErrorCode.NONE, None)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


async def alter(
    ctx: RequestContext,
    request: Any,
    check: Callable[[RequestContext, Any, bool], Result | None],
    respond: Callable[[Any, Result], Any],
) -> list[Any]:
    """One response per resource: decided by `check`, or else by the controller."""
    decided = _preprocess(ctx, request, check)
    remaining = [resource for resource, result in zip(request.resources, decided, strict=True) if result is None]
    answers: dict[tuple[int, str], Result] = {}
    if remaining:
        onward = type(request)(resources=remaining, validate_only=request.validate_only)
        response = await ctx.services.channel.forward(onward, ctx.version, ctx.caller, ctx.correlation_id)
        for answer in response.responses:
            key = (answer.resource_type, answer.resource_name)
            answers[key] = (answer.error_code, answer.error_message)
    responses = []
    for resource, result in zip(request.resources, decided, strict=True):
        if result is None:
            missing = (ErrorCode.UNKNOWN_SERVER_ERROR, None)
            result = answers.get((resource.resource_type, resource.resource_name), missing)
        responses.append(respond(resource, result))
    return responses


def _preprocess(
    ctx: RequestContext, request: Any, check: Callable[[RequestContext, Any, bool], Result | None]
) -> list[Result | None]:
    counts: dict[tuple[int, str], int] = {}
    for resource in request.resources:
        key = (resource.resource_type, resource.resource_name)
        counts[key] = counts.get(key, 0) + 1
    decided: list[Result | None] = []
    for resource in request.resources:
        if counts[resource.resource_type, resource.resource_name] > 1:
            decided.append((ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."))
            continue
        try:
            decided.append(check(ctx, resource, request.validate_only))
        except KafkaError as error:
            decided.append((error.code, error.message))
    return decided


def check_names(resource: Any, nullable: Callable[[Any], bool]) -> None:
    names = [config.name for config in resource.configs]
    if len(set(names)) != len(names):
        raise _invalid("Error due to duplicate config keys")
    missing = [config.name for config in resource.configs if config.value is None and not nullable(config)]
    if missing:
        raise _invalid("Null value not supported for : " + ", ".join(missing))


def check_resource_type(resource: Any) -> None:
    if resource.resource_type not in _FORWARDED:
        raise _invalid(f"Unknown resource type {resource.resource_type}")


def check_node_id(ctx: RequestContext, name: str) -> None:
    expected = ctx.services.config.node_id
    try:
        node_id = int(name)
    except ValueError:
        raise _invalid(f"Node id must be an integer, but it is: {name}") from None
    if node_id != expected:
        raise _invalid(f"Unexpected broker id, expected {expected}, but received {name}")


def check_broker_change(ctx: RequestContext, name: str, values: Mapping[str, str]) -> None:
    """Raise unless `values` can become the dynamic configs of this broker, or of all brokers when `name` is empty."""
    if name:
        check_node_id(ctx, name)
    try:
        validate_change(ctx.services.config, values, per_broker=bool(name))
    except ConfigError as error:
        # INVALID_CONFIG would fit better; clients know this one.
        raise _invalid(str(error)) from None


def incremental_broker_values(ctx: RequestContext, resource: Any) -> dict[str, str]:
    """What the dynamic configs of a broker resource would be after the operations."""
    stored = ctx.services.image.config(BROKER_RESOURCE, resource.resource_name)
    values, _ = usable(stored, per_broker=bool(resource.resource_name))
    for config in resource.configs:
        operation, name = config.config_operation, config.name
        if operation not in OPERATION_NAMES:
            raise _invalid(f"Unknown operations type {operation}")
        if operation == SET:
            values[name] = config.value
        elif operation == DELETE:
            values.pop(name, None)
        else:
            values[name] = _combined(name, operation, values.get(name), config.value)
    return values


def _combined(name: str, operation: int, before: str | None, change: str) -> str:
    key = BROKER_KEYS.get(name)
    if key is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown config name: {name}")
    if key.type != "list":
        verb = OPERATION_NAMES[operation].lower()
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Config value {verb} is not allowed for config key: {name}")
    return changed_list(key.to_text(key.default) if before is None else before, operation, change)


def change_logger_levels(ctx: RequestContext, resource: Any, validate_only: bool) -> None:
    """Levels of loggers live in this process only."""
    expected = ctx.services.config.node_id
    try:
        node_id = int(resource.resource_name)
    except ValueError:
        raise _invalid(f"Node id must be an integer, but it is: {resource.resource_name}") from None
    if node_id != expected:
        raise _invalid(f"Unexpected node id. Expected {expected}, but received {node_id}")
    known = log_lines.loggers()
    for config in resource.configs:
        operation, name = config.config_operation, config.name
        if operation in (APPEND, SUBTRACT):
            raise _invalid(f"{OPERATION_NAMES[operation]} operation is not allowed for the BROKER_LOGGER resource")
        if operation not in (SET, DELETE):
            raise _invalid(f"Unknown operation type {operation} is not allowed for the BROKER_LOGGER resource")
        if name not in known:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
        if operation == SET and config.value not in log_lines.LEVELS:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Cannot set the log level of {name} to {config.value} as it is not a supported log level. "
                f"Valid log levels are {', '.join(sorted(log_lines.LEVELS))}",
            )
        if operation == DELETE and name == log_lines.ROOT:
            raise _invalid("Removing the log level of the root logger is not allowed")
    if validate_only:
        return
    for config in resource.configs:
        if config.config_operation == SET:
            log_lines.set_level(config.name, config.value)
        else:
            log_lines.unset_level(config.name)
        logger.warning("log level changed", extra=log_lines.fields(logger=config.name, level=config.value))


__all__ = [
    "BROKER_LOGGER_RESOURCE",
    "BROKER_RESOURCE",
    "DELETE",
    "DONE",
    "Result",
    "alter",
    "change_logger_levels",
    "check_broker_change",
    "check_names",
    "check_node_id",
    "check_resource_type",
    "incremental_broker_values",
]
