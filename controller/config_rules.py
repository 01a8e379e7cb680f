"""What the controller asks about configs: is a value acceptable, is a key a list, what does a topic's key resolve to.

The controller decides and records; the registry in `pylogd.config` knows the keys. This object is injected, and turns
the registry's exceptions into the error codes that Kafka answers with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pylogd.config import group_configs, topic_configs
from pylogd.config.broker import BROKER_KEYS, BrokerConfig, find_key
from pylogd.config.config_error import ConfigError
from pylogd.config.definition import ConfigKey
from pylogd.controller.state import EffectiveConfig
from pylogd.metadata.image import BROKER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from pylogd.metadata.topic_names import invalid_name_reason
from pylogd.protocol.errors import ErrorCode, KafkaError

KEYS: Final[dict[int, dict[str, ConfigKey]]] = {
    TOPIC_RESOURCE: topic_configs.TOPIC_KEYS,
    BROKER_RESOURCE: BROKER_KEYS,
    GROUP_RESOURCE: group_configs.GROUP_KEYS,
    CLIENT_METRICS_RESOURCE: group_configs.CLIENT_METRICS_KEYS,
}
# Kafka's ConfigSource ids.
TOPIC_CONFIG: Final = 1
DYNAMIC_BROKER_CONFIG: Final = 2
DYNAMIC_DEFAULT_BROKER_CONFIG: Final = 3
STATIC_BROKER_CONFIG: Final = 4
DEFAULT_CONFIG: Final = 5
DYNAMIC_BROKER_LOGGER_CONFIG: Final = 6
CLIENT_METRICS_CONFIG: Final = 7
GROUP_CONFIG: Final = 8


def _invalid_request(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def check_topic_name(name: str) -> None:
    if not name:
        raise _invalid_request("Default topic resources are not allowed.")
    reason = invalid_name_reason(name)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


class ConfigRules:
    """Implements `pylogd.controller.state.ConfigRules` on the registry and this node's static configuration."""

    __slots__ = ("_config",)

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config

    def validate(self, resource_type: int, name: str, values: Mapping[str, str], current: Mapping[str, str]) -> None:
        try:
            if resource_type == TOPIC_RESOURCE:
                check_topic_name(name)
                topic_configs.validate(values, self._config, current)
            elif resource_type == BROKER_RESOURCE:
                # The broker that forwarded the change has checked the values against its own configuration.
                self._check_broker_name(name)
            elif resource_type == GROUP_RESOURCE:
                if not name:
                    raise _invalid_request("Default group resources are not allowed.")
                group_configs.validate(values, self._config)
            elif resource_type == CLIENT_METRICS_RESOURCE:
                self._check_client_metrics(name, values)
            else:
                raise _invalid_request(f"Unknown resource type {resource_type}")
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None

    @staticmethod
    def _check_broker_name(name: str) -> None:
        if not name:
            return
        if not name.lstrip("-").isdigit():
            raise _invalid_request("Unable to parse broker name as a base 10 number.")
        if int(name) < 0:
            raise _invalid_request("Invalid negative broker ID.")

    @staticmethod
    def _check_client_metrics(name: str, values: Mapping[str, str]) -> None:
        if not name:
            raise _invalid_request("Subscription name can't be empty")
        try:
            group_configs.validate_client_metrics(values)
        except ConfigError as error:
            # Names and the interval are a matter of the request, patterns one of the configuration.
            if error.name == "match":
                raise
            raise _invalid_request(str(error)) from None

    def is_list(self, resource_type: int, key: str) -> bool:
        definition = KEYS.get(resource_type, {}).get(key)
        return definition is not None and definition.type == "list"

    def default(self, resource_type: int, key: str) -> str | None:
        definition = KEYS.get(resource_type, {}).get(key)
        return None if definition is None or definition.required else definition.to_text(definition.default)

    def topic_value(
        self, key: str, topic: Mapping[str, str], node: Mapping[str, str], cluster: Mapping[str, str]
    ) -> str:
        value = self._effective(key, topic, node, cluster)[0]
        return "" if value is None else value

    def topic_configs(
        self, topic_values: Mapping[str, str], node: Mapping[str, str], cluster: Mapping[str, str]
    ) -> list[EffectiveConfig]:
        effective = []
        for name, definition in topic_configs.TOPIC_KEYS.items():
            # Internal keys are shown only when somebody set them.
            if definition.internal and name not in topic_values:
                continue
            value, source = self._effective(name, topic_values, node, cluster)
            effective.append(EffectiveConfig(name, value, False, source, definition.sensitive))
        return effective

    def _effective(
        self, key: str, topic_values: Mapping[str, str], node: Mapping[str, str], cluster: Mapping[str, str]
    ) -> tuple[str | None, int]:
        """The text of a topic config and the ConfigSource it comes from."""
        if key in topic_values:
            return topic_values[key], TOPIC_CONFIG
        for layer, source in (
            (node, DYNAMIC_BROKER_CONFIG),
            (cluster, DYNAMIC_DEFAULT_BROKER_CONFIG),
            (self._config.static, STATIC_BROKER_CONFIG),
        ):
            for synonym, factor in topic_configs.SYNONYMS.get(key, ()):
                if synonym in layer:
                    return _converted(synonym, layer[synonym], factor), source
        return self.default(TOPIC_RESOURCE, key), DEFAULT_CONFIG


def _converted(synonym: str, text: str, factor: int) -> str:
    if factor == 1:
        return text
    key = find_key(synonym)
    assert key is not None
    return str(key.convert(text) * factor)
