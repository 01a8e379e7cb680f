"""DescribeConfigs (key 32): the configs of topics, brokers, loggers, groups and client metrics subscriptions.

 1  synonyms, and the source of a value instead of "is default"
 3  types and documentation
 4  flexible

A value is shown with where it comes from and, on demand, with everything it hides: the same setting in a layer below
or under another name. A password, or a key nobody knows, is shown without its value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from pylogd.broker.network.context import RequestContext
from pylogd.config import group_configs, topic_configs
from pylogd.config.broker import BROKER_KEYS, BrokerConfig, find_key, synonyms
from pylogd.config.definition import ConfigKey
from pylogd.config.dynamic import is_dynamic
from pylogd.controller.config_rules import (
    CLIENT_METRICS_CONFIG,
    DEFAULT_CONFIG,
    DYNAMIC_BROKER_CONFIG,
    DYNAMIC_BROKER_LOGGER_CONFIG,
    DYNAMIC_DEFAULT_BROKER_CONFIG,
    GROUP_CONFIG,
    STATIC_BROKER_CONFIG,
    TOPIC_CONFIG,
)
from pylogd.metadata.image import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    ClusterImage,
)
from pylogd.metadata.topic_names import invalid_name_reason
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from pylogd.runtime import log_lines

_TYPE_IDS: Final = {
    "boolean": 1,
    "string": 2,
    "int": 3,
    "short": 4,
    "long": 5,
    "double": 6,
    "list": 7,
    "class": 8,
    "password": 9,
}


class Describer:
    """Answers for one request: which extras were asked for, and the node's configuration."""

    __slots__ = ("config", "documentation", "image", "synonyms")

    def __init__(self, config: BrokerConfig, image: ClusterImage, synonyms: bool, documentation: bool) -> None:
        self.config = config
        self.image = image
        self.synonyms = synonyms
        self.documentation = documentation

    def describe(self, resource: DescribeConfigsResource) -> list[DescribeConfigsResourceResult]:
        wanted = frozenset(resource.configuration_keys or ())
        entries = _DESCRIBERS[resource.resource_type](self, resource.resource_name)
        return [make() for name, make in entries if not wanted or name in wanted]

    def topic(self, name: str) -> Iterable[_Entry]:
        reason = invalid_name_reason(name)
        if reason is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
        image = self.image
        if name not in image.topics:
            # Kafka says nothing beyond the code here.
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
        overrides = image.config(TOPIC_RESOURCE, name)
        values = topic_configs.resolve(overrides, self.config)
        for key in topic_configs.TOPIC_KEYS.values():
            if key.internal and key.name not in overrides:
                continue
            beneath = topic_configs.SYNONYMS[key.name][0][0] if key.name in topic_configs.SYNONYMS else None
            yield key.name, self._override_entry(key, values, overrides, TOPIC_CONFIG, beneath)

    def group(self, name: str) -> Iterable[_Entry]:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        overrides = self.image.config(GROUP_RESOURCE, name)
        values = group_configs.resolve(overrides, self.config)
        for key in group_configs.GROUP_KEYS.values():
            beneath = group_configs.broker_synonym(key.name)
            yield key.name, self._override_entry(key, values, overrides, GROUP_CONFIG, beneath)

    def client_metrics(self, name: str) -> Iterable[_Entry]:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
        overrides = self.image.config(CLIENT_METRICS_RESOURCE, name)
        for key in group_configs.CLIENT_METRICS_KEYS.values():
            values = {key.name: key.convert(overrides[key.name]) if key.name in overrides else key.default}
            yield key.name, self._override_entry(key, values, overrides, CLIENT_METRICS_CONFIG, None)

    def broker(self, name: str) -> Iterable[_Entry]:
        config = self.config
        if not name:
            for key_name in config.dynamic_default:
                yield key_name, self._broker_entry(key_name, cluster_wide=True)
            return
        self._check_broker_id(name, "or empty string, ")
        for key_name in config.effective():
            key = BROKER_KEYS.get(key_name)
            if key is None or key.internal or "dynamic-only" in key.flags:
                yield key_name, self._broker_entry(key_name)
        for key in BROKER_KEYS.values():
            if not key.internal and "dynamic-only" not in key.flags:
                yield key.name, self._broker_entry(key.name)

    def broker_logger(self, name: str) -> Iterable[_Entry]:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
        self._check_broker_id(name, "")
        for logger, level in log_lines.loggers().items():
            yield logger, _logger_entry(logger, level)

    def _check_broker_id(self, name: str, alternative: str) -> None:
        expected = self.config.node_id
        try:
            matches = int(name) == expected
        except ValueError:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}") from None
        if not matches:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {expected} {alternative}but received {name}"
            )

    def _override_entry(
        self,
        key: ConfigKey,
        values: Mapping[str, Any],
        overrides: Mapping[str, str],
        source: int,
        broker_name: str | None,
    ) -> Callable[[], DescribeConfigsResourceResult]:
        """A config of a topic or group: its own value if it has one, then what the broker has for it."""

        def make() -> DescribeConfigsResourceResult:
            value = key.to_text(values[key.name])
            hidden: list[DescribeConfigsSynonym] = []
            if broker_name:
                hidden = self._layers(broker_name, key.sensitive)
            elif source == GROUP_CONFIG:
                hidden = [DescribeConfigsSynonym(name=key.name, value=key.to_text(key.default), source=DEFAULT_CONFIG)]
            if key.name in overrides:
                hidden.insert(0, DescribeConfigsSynonym(name=key.name, value=value, source=source))
            return self._entry(key.name, key, value, hidden, read_only=False)

        return make

    def _broker_entry(self, name: str, cluster_wide: bool = False) -> Callable[[], DescribeConfigsResourceResult]:
        def make() -> DescribeConfigsResourceResult:
            key = find_key(name)
            if cluster_wide:
                value: str | None = self.config.dynamic_default[name]
            else:
                value = None if key is None else key.to_text(self.config[name])
            hidden = self._layers(name, key is None or key.sensitive)
            if cluster_wide:
                hidden = [synonym for synonym in hidden if synonym.source == DYNAMIC_DEFAULT_BROKER_CONFIG]
            return self._entry(name, key, value, hidden, read_only=not is_dynamic(name))

        return make

    def _entry(
        self,
        name: str,
        key: ConfigKey | None,
        value: str | None,
        hidden: list[DescribeConfigsSynonym],
        read_only: bool,
    ) -> DescribeConfigsResourceResult:
        sensitive = key is None or key.sensitive
        return DescribeConfigsResourceResult(
            name=name,
            value=None if sensitive else value,
            read_only=read_only,
            config_source=hidden[0].source if hidden else DEFAULT_CONFIG,
            is_sensitive=sensitive,
            synonyms=hidden if self.synonyms else [],
            config_type=0 if key is None else _TYPE_IDS[key.type],
            documentation=key.doc if self.documentation and key is not None else None,
        )

    def _layers(self, name: str, sensitive: bool) -> list[DescribeConfigsSynonym]:
        """Every layer that has a value for the setting, by precedence, from the first one under this very name."""
        config = self.config
        names = synonyms(name)
        found = []
        for layer, source in (
            (config.dynamic_broker, DYNAMIC_BROKER_CONFIG),
            (config.dynamic_default, DYNAMIC_DEFAULT_BROKER_CONFIG),
            (config.static, STATIC_BROKER_CONFIG),
            (None, DEFAULT_CONFIG),
        ):
            for each in names:
                value = _default_text(each) if layer is None else layer.get(each)
                if value is not None:
                    shown = None if sensitive else value
                    found.append(DescribeConfigsSynonym(name=each, value=shown, source=source))
        while found and found[0].name != name:
            del found[0]
        return found


_Entry = tuple[str, Callable[[], DescribeConfigsResourceResult]]

_DESCRIBERS: Final[dict[int, Callable[[Describer, str], Iterable[_Entry]]]] = {
    TOPIC_RESOURCE: Describer.topic,
    BROKER_RESOURCE: Describer.broker,
    BROKER_LOGGER_RESOURCE: Describer.broker_logger,
    CLIENT_METRICS_RESOURCE: Describer.client_metrics,
    GROUP_RESOURCE: Describer.group,
}


def _default_text(name: str) -> str | None:
    key = BROKER_KEYS.get(name)
    return None if key is None or "dynamic-only" in key.flags else key.to_text(key.default)


def _logger_entry(name: str, level: str) -> Callable[[], DescribeConfigsResourceResult]:
    return lambda: DescribeConfigsResourceResult(name=name, value=level, config_source=DYNAMIC_BROKER_LOGGER_CONFIG)


def handle(ctx: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    for resource in request.resources:
        if resource.resource_type not in _DESCRIBERS:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected resource type {resource.resource_type} for resource {resource.resource_name}",
            )
    describer = Describer(
        ctx.services.config, ctx.services.image, request.include_synonyms, request.include_documentation
    )
    response = DescribeConfigsResponse(results=[])
    for resource in request.resources:
        result = DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name, configs=[]
        )
        try:
            result.configs = describer.describe(resource)
        except KafkaError as error:
            result.error_code = int(error.code)
            result.error_message = error.message
        response.results.append(result)
    return response
