"""Broker configs that change while the broker runs."""

from __future__ import annotations

import pytest
from pylogd.config.broker import BrokerConfig
from pylogd.config.config_error import ConfigError
from pylogd.config.dynamic import apply, validate_change

STATIC = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,EXTRA:PLAINTEXT",
    "log.dirs": "/a,/b",
}


@pytest.fixture
def config() -> BrokerConfig:
    return BrokerConfig(STATIC)


@pytest.mark.parametrize(
    ("values", "per_broker", "message"),
    [
        ({"log.retention.ms": "5"}, False, None),
        ({"log.cleaner.threads": "2"}, True, None),
        ({"max.connections": "5"}, False, None),
        ({"listener.name.plaintext.max.connections": "5"}, False, None),
        ({"leader.replication.throttled.rate": "5"}, True, None),
        ({"a.plugins.own.key": "x"}, True, None),
        ({"cordoned.log.dirs": "/a"}, True, None),
        ({"num.partitions": "5"}, True, "Cannot update these configs dynamically: [num.partitions]"),
        ({"ssl.keystore.location": "/x"}, True, "only per-listener"),
        ({"listener.name.x.ssl.keystore.location": "/x"}, False, "broker id must be specified"),
        ({"cordoned.log.dirs": "/a"}, False, "broker id must be specified"),
        ({"cordoned.log.dirs": "/c"}, True, "/c"),
        ({"log.retention.ms": "soon"}, True, "Not a number"),
        ({"log.retention.ms": "0"}, True, "at least 1"),
        ({"num.io.threads": "17"}, True, "double the current value 8"),
        ({"num.io.threads": "3"}, True, "half the current value 8"),
        ({"log.cleaner.threads": "0"}, True, "at least 1"),
        ({"listeners": "CONTROLLER://:9093"}, True, "listener"),
        ({"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093,EXTRA://:9094"}, True, None),
        ({"log.local.retention.ms": "604800001"}, True, "log.retention.ms"),
    ],
)
def test_changes_are_validated_against_the_running_config(
    config: BrokerConfig, values: dict[str, str], per_broker: bool, message: str | None
) -> None:
    if message is None:
        validate_change(config, values, per_broker=per_broker)
    else:
        with pytest.raises(ConfigError) as error:
            validate_change(config, values, per_broker=per_broker)
        assert message in str(error.value)
    assert config.dynamic_broker == config.dynamic_default == {}


def test_applied_changes_reach_readers_and_subscribers(config: BrokerConfig) -> None:
    changes: list[frozenset[str]] = []
    config.subscribe(changes.append)
    assert apply(config, default={"log.retention.ms": "5"}, broker={"message.max.bytes": "6"}) == {}
    assert config["log.retention.ms"] == 5
    assert config["message.max.bytes"] == 6
    assert config.source("log.retention.ms") == "DYNAMIC_DEFAULT_BROKER_CONFIG"
    assert config.source("message.max.bytes") == "DYNAMIC_BROKER_CONFIG"
    apply(config, default={"log.retention.ms": "5"}, broker={})
    assert config["message.max.bytes"] == 1048588
    assert changes == [{"log.retention.ms", "message.max.bytes"}, {"message.max.bytes"}]


def test_a_dynamic_value_hides_other_names_of_the_setting_below() -> None:
    config = BrokerConfig({**STATIC, "log.roll.ms": "1000"})
    apply(config, default={}, broker={"log.roll.ms": "2000"})
    assert config["log.roll.ms"] == 2000
    config.update_dynamic(default={}, broker={"log.roll.hours": "1"})
    assert config["log.roll.ms"] is None
    assert config["log.roll.hours"] == 1


def test_stored_settings_that_do_not_fit_are_left_out(config: BrokerConfig) -> None:
    ignored = apply(
        config,
        default={"cordoned.log.dirs": "/a", "log.retention.ms": "9"},
        broker={"num.partitions": "5", "message.max.bytes": "much", "ssl.key.password": "x"},
    )
    assert sorted(ignored) == ["cordoned.log.dirs", "message.max.bytes", "num.partitions", "ssl.key.password"]
    assert config["log.retention.ms"] == 9
    assert config["num.partitions"] == 1


def test_assignment_intervals_are_kept_within_their_bounds(config: BrokerConfig) -> None:
    apply(config, default={"group.consumer.assignment.interval.ms": "99999"}, broker={})
    assert config["group.consumer.assignment.interval.ms"] == 15000
