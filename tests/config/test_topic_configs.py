"""What a topic's overrides and the broker's settings resolve to."""

from __future__ import annotations

import pytest
from pylogd.config import topic_configs
from pylogd.config.broker import BrokerConfig
from pylogd.config.config_error import ConfigError


@pytest.mark.parametrize(
    ("static", "default", "broker", "overrides", "name", "value"),
    [
        ({}, {}, {}, {}, "retention.ms", 604_800_000),
        ({"log.retention.hours": "2"}, {}, {}, {}, "retention.ms", 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "5"}, {}, {}, {}, "retention.ms", 300_000),
        ({"log.retention.minutes": "5", "log.retention.ms": "7"}, {}, {}, {}, "retention.ms", 7),
        ({"log.retention.ms": "-1"}, {}, {}, {}, "retention.ms", -1),
        ({"log.retention.hours": "-1"}, {}, {}, {}, "retention.ms", -1),
        ({"log.retention.ms": "7"}, {"log.retention.ms": "8"}, {}, {}, "retention.ms", 8),
        ({}, {"log.retention.ms": "8"}, {"log.retention.ms": "9"}, {}, "retention.ms", 9),
        ({}, {}, {"log.retention.ms": "9"}, {"retention.ms": "10"}, "retention.ms", 10),
        ({"log.roll.hours": "1"}, {}, {}, {}, "segment.ms", 3_600_000),
        ({"log.flush.scheduler.interval.ms": "100"}, {}, {}, {}, "flush.ms", 100),
        ({"message.max.bytes": "5"}, {}, {}, {}, "max.message.bytes", 5),
        ({"log.cleanup.policy": "compact,delete"}, {}, {}, {}, "cleanup.policy", ["compact", "delete"]),
        ({"log.cleaner.min.cleanable.ratio": "0.1"}, {}, {}, {}, "min.cleanable.dirty.ratio", 0.1),
        ({}, {}, {}, {"internal.segment.bytes": "100"}, "internal.segment.bytes", 100),
    ],
)
def test_precedence(
    static: dict[str, str],
    default: dict[str, str],
    broker: dict[str, str],
    overrides: dict[str, str],
    name: str,
    value: object,
) -> None:
    config = BrokerConfig({"node.id": "1", **static})
    config.update_dynamic(default=default, broker=broker)
    assert topic_configs.resolve(overrides, config)[name] == value


def test_every_key_resolves() -> None:
    values = topic_configs.resolve({}, BrokerConfig({"node.id": "1"}))
    assert values.keys() == {*topic_configs.TOPIC_KEYS, *topic_configs.BROKER_WIDE}


@pytest.mark.parametrize(
    ("overrides", "name", "message"),
    [
        (
            {"retention.msec": "5"},
            "retention.msec",
            "retention.msec (did you mean retention.ms?)",
        ),
        (
            {"retention.ms": "x"},
            "retention.ms",
            "Invalid value x for configuration retention.ms: Not a number",
        ),
        ({"retention.ms": "-2"}, "retention.ms", "at least -1"),
        ({"cleanup.policy": "shred"}, "cleanup.policy", "one of: compact, delete"),
        ({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}, "min.compaction.lag.ms", "conflict"),
        ({"remote.storage.enable": "true"}, "remote.storage.enable", "disabled in the broker"),
    ],
)
def test_bad_overrides_are_refused(overrides: dict[str, str], name: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        topic_configs.validate(overrides, BrokerConfig({"node.id": "1"}))
    assert error.value.name == name
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        ({"cleanup.policy": "compact"}, "cleanup.policy"),
        ({"retention.ms": "10", "local.retention.ms": "11"}, "local.retention.ms"),
        ({"retention.bytes": "10", "local.retention.bytes": "-1"}, "local.retention.bytes"),
        ({"remote.log.copy.disable": "true", "local.retention.ms": "5"}, "local.retention.ms"),
        ({"retention.ms": "10", "local.retention.ms": "10"}, None),
    ],
)
def test_tiered_topics_have_rules_of_their_own(overrides: dict[str, str], name: str | None) -> None:
    broker = BrokerConfig({"node.id": "1", "remote.log.storage.system.enable": "true"})
    overrides = {"remote.storage.enable": "true", **overrides}
    if name is None:
        topic_configs.validate(overrides, broker)
        return
    with pytest.raises(ConfigError) as error:
        topic_configs.validate(overrides, broker)
    assert error.value.name == name


def test_tiering_is_not_turned_off_over_remote_data() -> None:
    broker = BrokerConfig({"node.id": "1"})
    before = {"remote.storage.enable": "true"}
    with pytest.raises(ConfigError):
        topic_configs.validate({"remote.storage.enable": "false"}, broker, before)
    topic_configs.validate({"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}, broker, before)
