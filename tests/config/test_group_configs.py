"""Group configs within the broker's bounds, and client metrics subscriptions."""

from __future__ import annotations

import pytest
from pylogd.config import group_configs
from pylogd.config.broker import BROKER_KEYS, BrokerConfig
from pylogd.config.config_error import ConfigError

BROKER = BrokerConfig({"node.id": "1", "group.share.session.timeout.ms": "50000"})


def test_a_group_inherits_from_the_broker() -> None:
    values = group_configs.resolve({"consumer.session.timeout.ms": "46000"}, BROKER)
    assert values["consumer.session.timeout.ms"] == 46000
    assert values["share.session.timeout.ms"] == 50000
    assert values["share.auto.offset.reset"] == "latest"


def test_synonyms_are_broker_keys() -> None:
    names = [group_configs.broker_synonym(name) for name in group_configs.GROUP_KEYS]
    assert all(name is None or name in BROKER_KEYS for name in names)
    assert names.count(None) == 3


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"nope": "1"}, "Unknown group config name: nope"),
        ({"consumer.session.timeout.ms": "1"}, "greater than or equal to group.consumer.min.session.timeout.ms"),
        ({"share.heartbeat.interval.ms": "15001"}, "less than or equal to group.share.max.heartbeat.interval.ms"),
        ({"share.partition.max.record.locks": "5000"}, "group.share.max.partition.max.record.locks"),
        ({"streams.num.standby.replicas": "3"}, "group.streams.max.standby.replicas"),
        ({"share.isolation.level": "dirty"}, "one of: read_committed, read_uncommitted"),
    ],
)
def test_values_out_of_bounds_are_refused(overrides: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        group_configs.validate(overrides, BROKER)
    assert message in str(error.value)


def test_a_session_outlasts_a_heartbeat() -> None:
    broker = BrokerConfig({"node.id": "1", "group.consumer.min.session.timeout.ms": "1000"})
    with pytest.raises(ConfigError, match=r"must be greater than consumer\.heartbeat\.interval\.ms"):
        group_configs.validate({"consumer.session.timeout.ms": "5000"}, broker)


@pytest.mark.parametrize(
    ("overrides", "good"),
    [
        ({"metrics": "org.apache.kafka.producer.", "interval.ms": "100"}, True),
        ({"metrics": "*", "match": "client_id=a.*,client_software_name=Java"}, True),
        ({"interval.ms": "99"}, False),
        ({"interval.ms": "3600001"}, False),
        ({"match": "shoe_size=43"}, False),
        ({"match": "client_id"}, False),
        ({"match": "client_id=("}, False),
        ({"match": "client_id=a=b"}, False),
        ({"colour": "blue"}, False),
    ],
)
def test_client_metrics_subscriptions(overrides: dict[str, str], good: bool) -> None:
    if good:
        group_configs.validate_client_metrics(overrides)
    else:
        with pytest.raises(ConfigError):
            group_configs.validate_client_metrics(overrides)
