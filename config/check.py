"""Checks over several keys at once: what Kafka's own configuration refuses at start-up."""

from __future__ import annotations

import posixpath

from pylogd.config import topic_configs
from pylogd.config.broker import BROKER_KEYS, BrokerConfig
from pylogd.config.config_error import ConfigError


def check_broker(config: BrokerConfig) -> list[str]:
    """Raise ConfigError for a combination that cannot work; returns warnings about doubtful ones."""
    for name in ("process.roles", "node.id", "controller.listener.names"):
        if config[name] is None:
            raise ConfigError(name, None, "a value", f"Missing required configuration {name}: {BROKER_KEYS[name].doc}")
    if config["node.id"] != config["broker.id"]:
        raise ConfigError("broker.id", config["broker.id"], f"must be equal to node.id ({config.node_id})")
    _check_logs(config)
    _check_quorum(config)
    _check_listeners(config)
    _check_sockets(config)
    _check_supported(config)
    warnings = []
    heartbeat, session = config["broker.heartbeat.interval.ms"], config["broker.session.timeout.ms"]
    if heartbeat * 2 > session:
        ratio = f"broker.heartbeat.interval.ms ({heartbeat}) should be at most half of broker.session.timeout.ms"
        warnings.append(f"{ratio} ({session})")
    if config.roles == ["broker"] and len(config.controller_listener_names) > 1:
        warnings.append("controller.listener.names has several entries; a broker uses the first one only")
    return warnings


def _require(condition: bool, config: BrokerConfig, name: str, expectation: str) -> None:
    if not condition:
        key = BROKER_KEYS[name]
        value = "[hidden]" if key.sensitive else key.to_text(config[name])
        raise ConfigError(name, value, expectation)


def _check_logs(config: BrokerConfig) -> None:
    values = topic_configs.defaults(config)
    _require(values["segment.ms"] >= 1, config, "log.roll.ms", "Value must be at least 1")
    _require(values["segment.jitter.ms"] >= 0, config, "log.roll.jitter.ms", "Value must be at least 0")
    _require(values["retention.ms"] != 0, config, "log.retention.ms", "Value must be -1 (unlimited) or at least 1")
    paths = [posixpath.normpath(path) for path in config.log_dirs]
    _require(len(set(paths)) == len(paths), config, "log.dirs", "Each directory must be given only once")
    threads = config["log.cleaner.threads"]
    _require(
        threads == 0 or config["log.cleaner.dedupe.buffer.size"] // threads > 1024 * 1024,
        config,
        "log.cleaner.dedupe.buffer.size",
        "There must be more than 1048576 bytes per cleaner thread",
    )
    wait = config["replica.fetch.wait.max.ms"]
    for name in ("replica.socket.timeout.ms", "replica.lag.time.max.ms"):
        _require(wait <= config[name], config, name, f"Value must be at least replica.fetch.wait.max.ms ({wait})")
    if config.is_broker:
        cordoned = config["cordoned.log.dirs"]
        if "*" in cordoned:
            _require(len(cordoned) == 1, config, "cordoned.log.dirs", "* must be the only value")
        else:
            unknown = [directory for directory in cordoned if directory not in config.log_dirs]
            _require(not unknown, config, "cordoned.log.dirs", f"Not among log.dirs: {','.join(unknown)}")


def _check_quorum(config: BrokerConfig) -> None:
    voters = config.voters
    names = config.controller_listener_names
    if config.is_controller:
        _require(
            not voters or config.node_id in voters,
            config,
            "controller.quorum.voters",
            f"The voters must include node.id ({config.node_id}) when process.roles contains controller",
        )
        listening = {endpoint.name for endpoint in config.listeners}
        for name in names:
            _require(
                name in listening,
                config,
                "controller.listener.names",
                f"{name} is not among listeners, which a controller needs",
            )
        if not config.is_broker:
            _require(
                listening <= set(names),
                config,
                "listeners",
                "A controller without the broker role may only have listeners from controller.listener.names",
            )
        return
    # A controller without quorum settings is a quorum of one; a broker alone has to be told where the quorum is.
    _require(
        bool(voters or config.bootstrap_servers),
        config,
        "controller.quorum.bootstrap.servers",
        "Needed (or controller.quorum.voters) when process.roles is broker",
    )
    _require(
        config.node_id not in voters,
        config,
        "controller.quorum.voters",
        f"The voters must not include node.id ({config.node_id}) when process.roles is broker",
    )
    _require(
        not config.controller_listeners,
        config,
        "listeners",
        "A broker without the controller role must not have listeners from controller.listener.names",
    )
    protocols = config.security_protocols
    for name in names:
        _require(name in protocols, config, "listener.security.protocol.map", f"Controller listener {name} is missing")
    _require(
        not config["controller.quorum.auto.join.enable"],
        config,
        "controller.quorum.auto.join.enable",
        "Only nodes with the controller role can join the quorum",
    )


def _check_listeners(config: BrokerConfig) -> None:
    protocols = config.security_protocols
    listening = [endpoint.name for endpoint in config.listeners]
    for name in listening:
        _require(name in protocols, config, "listener.security.protocol.map", f"Listener {name} is missing")
    if config["inter.broker.listener.name"] is not None and config.is_set("security.inter.broker.protocol"):
        raise ConfigError(
            "inter.broker.listener.name",
            config["inter.broker.listener.name"],
            "Only one of inter.broker.listener.name and security.inter.broker.protocol may be set",
        )
    inter_broker = config.inter_broker_listener_name
    _require(
        inter_broker in protocols,
        config,
        "inter.broker.listener.name",
        f"Listener {inter_broker} is not in listener.security.protocol.map",
    )
    if not config.is_broker:
        _require(
            config["inter.broker.listener.name"] is None or inter_broker not in config.controller_listener_names,
            config,
            "inter.broker.listener.name",
            "Must not be one of controller.listener.names",
        )
        return
    advertised = config.advertised_listeners
    effective = config.broker_listeners if advertised is None else advertised
    names = [endpoint.name for endpoint in effective]
    _require(bool(names), config, "listeners", "A broker needs a listener that is not among controller.listener.names")
    _require(
        inter_broker in names,
        config,
        "inter.broker.listener.name",
        f"{inter_broker} is not an advertised listener; it should be one of {','.join(names)}",
    )
    for endpoint in advertised or ():
        _require(
            endpoint.name in listening,
            config,
            "advertised.listeners",
            f"{endpoint.name} is not among listeners ({','.join(listening)})",
        )
        _require(
            endpoint.host not in ("", "0.0.0.0", "::"),
            config,
            "advertised.listeners",
            "Clients cannot connect to a wildcard address; give a host name or address",
        )


def _check_sockets(config: BrokerConfig) -> None:
    queued = config["queued.max.request.bytes"]
    largest = config["socket.request.max.bytes"]
    _require(
        queued <= 0 or queued >= largest,
        config,
        "queued.max.request.bytes",
        f"Value must be at least socket.request.max.bytes ({largest})",
    )
    overrides = config.max_connections_per_ip_overrides
    _require(
        config["max.connections.per.ip"] != 0 or bool(overrides),
        config,
        "max.connections.per.ip",
        "Zero needs max.connections.per.ip.overrides",
    )
    idle, delay = config["connections.max.idle.ms"], config["connection.failed.authentication.delay.ms"]
    _require(
        idle < 0 or delay < idle,
        config,
        "connection.failed.authentication.delay.ms",
        f"Value must be less than connections.max.idle.ms ({idle})",
    )
    if config.is_broker and config.security_protocols.get(config.inter_broker_listener_name, "").startswith("SASL_"):
        enabled = config.for_listener(config.inter_broker_listener_name, "sasl.enabled.mechanisms")
        _require(
            config["sasl.mechanism.inter.broker.protocol"] in enabled,
            config,
            "sasl.mechanism.inter.broker.protocol",
            f"Must be one of sasl.enabled.mechanisms ({','.join(enabled)})",
        )


def _check_supported(config: BrokerConfig) -> None:
    """What would be dangerous to ignore: a user who asks for protection must not get a broker without it."""
    protocols = config.security_protocols
    for endpoint in config.listeners:
        protocol = protocols[endpoint.name]
        if protocol != "PLAINTEXT":
            raise ConfigError(
                "listeners", str(endpoint), f"This version cannot serve {protocol}; only PLAINTEXT is available"
            )
    _require(
        not config["authorizer.class.name"],
        config,
        "authorizer.class.name",
        "This version has no access control; remove the key to run without it",
    )
    _require(
        not config["remote.log.storage.system.enable"],
        config,
        "remote.log.storage.system.enable",
        "This version has no tiered storage",
    )
