"""Broker configs that change while the broker runs: which may, how far at once, and how they take effect.

Stored changes come from the metadata log, where an older or a newer node may have written what this one would refuse;
so a change is validated with all rules before it is stored (`validate_change`), and what is stored is applied with
whatever does not fit left out (`apply`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pylogd.config.broker import BROKER_KEYS, BrokerConfig, base_name, find_key
from pylogd.config.check import check_broker
from pylogd.config.config_error import ConfigError

# Without a listener in front these belong to no listener, and a running broker cannot tell which to reload.
PER_LISTENER_ONLY: Final = (
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.key.password",
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.truststore.certificates",
)
# May be set for the whole cluster even with a listener prefix.
_CLUSTER_LEVEL_LISTENER: Final = ("max.connections", "max.connection.creation.rate", "num.network.threads")
# Sizes of pools, which at most double or halve in one step.
_POOLS: Final = (
    "num.io.threads",
    "num.network.threads",
    "num.replica.fetchers",
    "num.recovery.threads.per.data.dir",
    "background.threads",
    "log.cleaner.threads",
    "remote.log.reader.threads",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
)
# Kept between the minimum and maximum of the same name when applied.
_CLAMPED: Final = ("consumer", "share", "streams")


def is_dynamic(name: str) -> bool:
    key = BROKER_KEYS.get(name)
    return key is not None and key.update_mode != "read-only"


def _refused_name(name: str, per_broker: bool) -> str | None:
    """Why a name cannot be set dynamically at this level. Names nobody knows may be a plugin's."""
    key = BROKER_KEYS.get(name)
    if key is not None and key.update_mode == "read-only":
        return "Cannot update these configs dynamically"
    if name in PER_LISTENER_ONLY:
        return "These security configs can be dynamically updated only per-listener using the listener prefix"
    if not per_broker:
        prefixed = base_name(name) != name
        if prefixed and base_name(name) not in _CLUSTER_LEVEL_LISTENER:
            return "Cannot update these configs at default cluster level, broker id must be specified"
        if key is not None and key.update_mode == "per-broker" and name not in _CLUSTER_LEVEL_LISTENER:
            return "Cannot update these configs at default cluster level, broker id must be specified"
    return None


def validate_change(config: BrokerConfig, values: Mapping[str, str], *, per_broker: bool) -> None:
    """Raise ConfigError unless `values` can become all dynamic settings of this broker, or of all brokers."""
    refusals: dict[str, list[str]] = {}
    for name in values:
        reason = _refused_name(name, per_broker)
        if reason is not None:
            refusals.setdefault(reason, []).append(name)
    for reason, names in refusals.items():
        raise ConfigError(names[0], None, reason, f"{reason}: [{', '.join(sorted(names))}]")
    for name, text in values.items():
        key = find_key(name)
        if key is not None:
            key.parse(text)
    if per_broker:
        changed = config.copy_with(default=config.dynamic_default, broker=values)
    else:
        changed = config.copy_with(default=values, broker=config.dynamic_broker)
    check_broker(changed)
    _check_steps(config, changed)
    _check_listeners(config, changed)
    _check_local_retention(changed)


def _check_steps(before: BrokerConfig, after: BrokerConfig) -> None:
    for name in _POOLS:
        old, new = before[name], after[name]
        if new == old:
            continue
        if new < 1:
            raise ConfigError(name, new, "value should be at least 1")
        if new < old // 2:
            raise ConfigError(name, new, f"value should be at least half the current value {old}")
        if new > old * 2:
            raise ConfigError(name, new, f"value should not be greater than double the current value {old}")


def _check_listeners(before: BrokerConfig, after: BrokerConfig) -> None:
    if before["listeners"] == after["listeners"] and before.security_protocols == after.security_protocols:
        return
    kept = {endpoint.name for endpoint in after.listeners}
    advertised = before.advertised_listeners
    for endpoint in before.broker_listeners if advertised is None else advertised:
        if endpoint.name not in kept:
            raise ConfigError("listeners", ",".join(after["listeners"]), f"{endpoint.name} is advertised and must stay")
    for endpoint in before.listeners:
        protocols = before.security_protocols.get(endpoint.name), after.security_protocols.get(endpoint.name)
        if endpoint.name in kept and protocols[0] != protocols[1]:
            raise ConfigError(
                "listener.security.protocol.map", protocols[1], f"listener {endpoint.name} exists with {protocols[0]}"
            )


def _check_local_retention(config: BrokerConfig) -> None:
    from pylogd.config import topic_configs

    values = topic_configs.defaults(config)
    for name, total in (("local.retention.ms", "retention.ms"), ("local.retention.bytes", "retention.bytes")):
        kept, limit = values[name], values[total]
        if kept == -2 or limit < 0:
            continue
        if kept == -1 or kept > limit:
            raise ConfigError(f"log.{name}", kept, f"Value must not be more than log.{total}: {limit}")


def usable(values: Mapping[str, str], *, per_broker: bool) -> tuple[dict[str, str], dict[str, str]]:
    """Stored settings that can be applied, and why the others cannot."""
    good: dict[str, str] = {}
    bad: dict[str, str] = {}
    for name, text in values.items():
        reason = _refused_name(name, per_broker)
        key = find_key(name)
        if reason is None and key is not None:
            try:
                key.parse(text)
            except ConfigError as error:
                reason = error.expectation
        if reason is None:
            good[name] = text
        else:
            bad[name] = reason
    return good, bad


def apply(config: BrokerConfig, *, default: Mapping[str, str], broker: Mapping[str, str]) -> dict[str, str]:
    """Make the stored settings of all brokers and of this one take effect; returns the ignored ones with reasons."""
    cluster_wide, ignored = usable(default, per_broker=False)
    own, ignored_own = usable(broker, per_broker=True)
    for layer in (cluster_wide, own):
        _clamp(config, layer)
    config.update_dynamic(default=cluster_wide, broker=own)
    return {**ignored, **ignored_own}


def _clamp(config: BrokerConfig, layer: dict[str, str]) -> None:
    for kind in _CLAMPED:
        name = f"group.{kind}.assignment.interval.ms"
        if name in layer:
            low = config[f"group.{kind}.min.assignment.interval.ms"]
            high = config[f"group.{kind}.max.assignment.interval.ms"]
            layer[name] = str(min(max(int(layer[name]), low), high))
