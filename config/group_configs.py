"""Group configs and client metrics subscriptions: the keys, their broker-wide synonyms and bounds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pylogd.config.config_error import ConfigError
from pylogd.config.definition import parse_table

if TYPE_CHECKING:
    from pylogd.config.broker import BrokerConfig

GROUP_KEYS: Final = parse_table("""
# Group
consumer.session.timeout.ms int 45000 1.. medium
    Session time-out of the members.
consumer.heartbeat.interval.ms int 5000 1.. medium
    Heartbeat interval of the members.
consumer.assignment.interval.ms int 1000 0.. medium
    Least time between two assignments.
share.session.timeout.ms int 45000 1.. medium inert
    Session time-out of the share group's members.
share.heartbeat.interval.ms int 5000 1.. medium inert
    Heartbeat interval of the share group's members.
share.assignment.interval.ms int 1000 0.. medium inert
    Least time between two assignments of the share group.
share.record.lock.duration.ms int 30000 1000.. medium inert
    How long a delivered record is reserved for its consumer.
share.delivery.count.limit int 5 2.. medium inert
    Deliveries of one record before it is given up.
share.partition.max.record.locks int 2000 100.. medium inert
    Most records of one partition reserved at one time.
share.auto.offset.reset string latest reset medium inert
    Where a new share group starts: earliest, latest, or by_duration:<ISO 8601 duration> ago.
share.isolation.level string read_uncommitted {read_committed,read_uncommitted} medium inert
    Whether records of aborted transactions are delivered.
share.renew.acknowledge.enable boolean true * medium inert
    Allow a consumer to extend its reservation of a record.
streams.session.timeout.ms int 45000 1.. medium inert
    Session time-out of the streams group's members.
streams.heartbeat.interval.ms int 5000 1.. medium inert
    Heartbeat interval of the streams group's members.
streams.assignment.interval.ms int 1000 0.. medium inert
    Least time between two assignments of the streams group.
streams.num.standby.replicas int 0 0.. medium inert
    Standby copies of each task.
streams.initial.rebalance.delay.ms int 3000 0.. medium inert
    Wait for more members before the first assignment.
""")

CLIENT_METRICS_KEYS: Final = parse_table("""
# Client metrics
metrics list "" list? medium
    Prefixes of the metrics that matching clients push; * is all of them.
interval.ms int 300000 * medium
    How often matching clients push.
match list "" list? medium
    Which clients: attribute=pattern pairs; empty means all.
""")

# Group configs without a broker-wide default.
_GROUP_ONLY: Final = ("share.auto.offset.reset", "share.isolation.level", "share.renew.acknowledge.enable")
# Values between the broker's minimum and maximum of the same name (`share.x.y` lies in `group.share.min.x.y`...).
_BOUNDED: Final = (
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
    "consumer.assignment.interval.ms",
    "share.heartbeat.interval.ms",
    "share.session.timeout.ms",
    "share.record.lock.duration.ms",
    "share.delivery.count.limit",
    "share.partition.max.record.locks",
    "share.assignment.interval.ms",
    "streams.heartbeat.interval.ms",
    "streams.session.timeout.ms",
    "streams.assignment.interval.ms",
)
_MATCH_ATTRIBUTES: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


def broker_synonym(name: str) -> str | None:
    return None if name in _GROUP_ONLY or name not in GROUP_KEYS else f"group.{name}"


def _bound(name: str, which: str) -> str:
    kind, rest = name.split(".", 1)
    return f"group.{kind}.{which}.{rest}"


def defaults(broker: BrokerConfig) -> dict[str, Any]:
    values = {}
    for name, key in GROUP_KEYS.items():
        synonym = broker_synonym(name)
        values[name] = broker[synonym] if synonym else key.default
    return values


def resolve(overrides: Mapping[str, str], broker: BrokerConfig) -> dict[str, Any]:
    values = defaults(broker)
    for name, text in overrides.items():
        key = GROUP_KEYS.get(name)
        if key is not None:
            values[name] = key.convert(text)
    return values


def validate(overrides: Mapping[str, str], broker: BrokerConfig) -> None:
    """Raise ConfigError for an unknown name, or a value outside its own or the broker's bounds."""
    for name in overrides:
        if name not in GROUP_KEYS:
            raise ConfigError(name, None, "a group config", f"Unknown group config name: {name}")
    values = defaults(broker)
    for name, text in overrides.items():
        values[name] = GROUP_KEYS[name].parse(text)
    for name in _BOUNDED:
        low, high = _bound(name, "min"), _bound(name, "max")
        if values[name] < broker[low]:
            _refuse(name, values[name], f"must be greater than or equal to {low}")
        if values[name] > broker[high]:
            _refuse(name, values[name], f"must be less than or equal to {high}")
    standby = "streams.num.standby.replicas"
    if values[standby] > broker["group.streams.max.standby.replicas"]:
        _refuse(standby, values[standby], "must be less than or equal to group.streams.max.standby.replicas")
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if values[session] <= values[heartbeat]:
            _refuse(session, values[session], f"must be greater than {heartbeat}")


def _refuse(name: str, value: object, expectation: str) -> None:
    raise ConfigError(name, value, expectation, f"{name} {expectation}")


def validate_client_metrics(overrides: Mapping[str, str]) -> None:
    """Raise ConfigError for a subscription that no client could be matched with."""
    for name in overrides:
        if name not in CLIENT_METRICS_KEYS:
            message = f"Unknown client metrics configuration: {name}"
            raise ConfigError(name, None, "metrics, interval.ms or match", message)
    values = {name: CLIENT_METRICS_KEYS[name].parse(text) for name, text in overrides.items()}
    interval = values.get("interval.ms")
    if interval is not None and not 100 <= interval <= 3_600_000:
        raise ConfigError("interval.ms", interval, "interval must be between 100 and 3600000 (1 hour)")
    for pattern in values.get("match", ()):
        attribute, equals, expression = pattern.partition("=")
        legal = equals and "=" not in expression and expression and attribute.strip() in _MATCH_ATTRIBUTES
        if legal:
            try:
                re.compile(expression.strip())
            except re.error:
                legal = False
        if not legal:
            raise ConfigError("match", pattern, "attribute=pattern", f"Illegal client matching pattern: {pattern}")
