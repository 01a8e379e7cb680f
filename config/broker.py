"""The broker's configuration: every key of Kafka 4.3 and pylogd's own, and the values that hold at this moment.

A value comes from, first one wins: what was set dynamically for this broker, what was set dynamically for all
brokers, what the node was started with, the default. Some settings have several names (`log.roll.ms` and
`log.roll.hours`); setting one dynamically hides the others from below, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from pylogd.config import listeners
from pylogd.config.config_error import ConfigError
from pylogd.config.definition import ConfigKey, parse_table
from pylogd.config.keys import coordinator_keys, log_keys, pylogd_keys, remote_keys, security_keys, server_keys
from pylogd.config.listeners import Endpoint
from pylogd.config.valid import parse_server, parse_voter

BROKER_KEYS: Final[dict[str, ConfigKey]] = {
    **parse_table(server_keys.KEYS),
    **parse_table(log_keys.KEYS),
    **parse_table(coordinator_keys.KEYS),
    **parse_table(security_keys.KEYS),
    **parse_table(remote_keys.KEYS),
    **parse_table(pylogd_keys.KEYS),
}

_FAMILIES: Final = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
_MECHANISM_KEYS: Final = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)


def base_name(name: str) -> str:
    """`ssl.key.password` for `listener.name.external.ssl.key.password`; other names as they are."""
    if not name.startswith("listener.name."):
        return name
    rest = name[len("listener.name.") :].partition(".")[2]
    for key in _MECHANISM_KEYS:  # listener.name.<listener>.<mechanism>.<key>
        if rest.endswith(key):
            return key
    return rest or name


def synonyms(name: str, *, listener_override: bool = True) -> tuple[str, ...]:
    """The names under which the same setting can be given, in order of precedence."""
    for family in _FAMILIES:
        if name in family:
            return family
    if name == "log.flush.interval.ms":
        return ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")
    base = base_name(name)
    return (name, base) if listener_override and base != name else (name,)


def find_key(name: str) -> ConfigKey | None:
    """The definition of a name, which may carry a listener prefix."""
    return BROKER_KEYS.get(name) or BROKER_KEYS.get(base_name(name))


class BrokerConfig:
    """Typed values by Kafka's names: `config["log.segment.bytes"]`.

    Holders keep the object and read it again where a value may change; `subscribe` tells which names changed.
    """

    __slots__ = ("_effective", "_subscribers", "_values", "dynamic_broker", "dynamic_default", "places", "static")

    def __init__(self, static: Mapping[str, str], places: Mapping[str, str] | None = None) -> None:
        self.static = dict(static)
        if "node.id" in self.static:
            self.static.setdefault("broker.id", self.static["node.id"])
        elif "broker.id" in self.static:
            self.static["node.id"] = self.static["broker.id"]
        self.places = dict(places or {})
        self.dynamic_default: dict[str, str] = {}
        self.dynamic_broker: dict[str, str] = {}
        self._effective = self.static
        self._values: dict[str, Any] = {}
        self._subscribers: list[Callable[[frozenset[str]], None]] = []
        for name, text in self.static.items():
            key = find_key(name)
            if key is not None:
                self._values[name] = key.parse(text)

    def __getitem__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            value = self._values[name] = self._resolve(name)
            return value

    def _resolve(self, name: str) -> Any:
        key = BROKER_KEYS.get(name) or find_key(name)
        text = self._effective.get(name)
        if key is None:
            if text is None:
                raise KeyError(name)
            return text
        if text is not None:
            return key.convert(text)
        return key.default

    def get(self, name: str, default: Any = None) -> Any:
        """Also for names outside the registry, such as those of plugins."""
        try:
            return self[name]
        except KeyError:
            return default

    def for_listener(self, listener: str, name: str) -> Any:
        """A value that one listener may override with `listener.name.<listener>.<name>`."""
        prefixed = f"listener.name.{listener.lower()}.{name}"
        return self[prefixed] if prefixed in self._effective else self[name]

    def is_set(self, name: str) -> bool:
        """Whether anybody gave this very name a value."""
        return name in self._effective

    def source(self, name: str) -> str:
        """Where the value of a name comes from, in Kafka's words."""
        if name in self.dynamic_broker:
            return "DYNAMIC_BROKER_CONFIG"
        if name in self.dynamic_default:
            return "DYNAMIC_DEFAULT_BROKER_CONFIG"
        return "STATIC_BROKER_CONFIG" if name in self.static else "DEFAULT_CONFIG"

    def effective(self) -> Mapping[str, str]:
        """Everything that was given, as text, after precedence."""
        return self._effective

    def copy_with(self, *, default: Mapping[str, str], broker: Mapping[str, str]) -> BrokerConfig:
        """What this config would be with these dynamic settings; bad values raise ConfigError."""
        other = BrokerConfig(self.static, self.places)
        other.update_dynamic(default=default, broker=broker)
        return other

    def update_dynamic(self, *, default: Mapping[str, str], broker: Mapping[str, str]) -> frozenset[str]:
        """Replace the dynamic settings; tells the subscribers and returns the names whose text changed."""
        merged = dict(self.static)
        for layer in (default, broker):
            for name in layer:
                for other in synonyms(name, listener_override=False):
                    merged.pop(other, None)
            merged.update(layer)
        values: dict[str, Any] = {}
        for name, text in merged.items():
            key = find_key(name)
            if key is not None:
                values[name] = key.parse(text)
        before = self._effective
        changed = frozenset(name for name in before.keys() | merged.keys() if before.get(name) != merged.get(name))
        self.dynamic_default = dict(default)
        self.dynamic_broker = dict(broker)
        self._effective = merged
        self._values = values
        if changed:
            for subscriber in self._subscribers:
                subscriber(changed)
        return changed

    def subscribe(self, subscriber: Callable[[frozenset[str]], None]) -> None:
        """Call back with the names that changed, after they changed."""
        self._subscribers.append(subscriber)

    # What is derived from several keys.

    @property
    def node_id(self) -> int:
        return int(self["node.id"])

    @property
    def roles(self) -> list[str]:
        return list(self["process.roles"])

    @property
    def is_broker(self) -> bool:
        return "broker" in self["process.roles"]

    @property
    def is_controller(self) -> bool:
        return "controller" in self["process.roles"]

    @property
    def log_dirs(self) -> list[str]:
        return list(self["log.dirs"] if self["log.dirs"] is not None else self["log.dir"])

    @property
    def metadata_log_dir(self) -> str:
        return str(self["metadata.log.dir"] or self.log_dirs[0])

    @property
    def cordoned_log_dirs(self) -> list[str]:
        cordoned = self["cordoned.log.dirs"]
        return self.log_dirs if "*" in cordoned else list(cordoned)

    @property
    def controller_listener_names(self) -> list[str]:
        return [name.upper() for name in self["controller.listener.names"] or ()]

    @property
    def listeners(self) -> list[Endpoint]:
        return listeners.parse_listeners("listeners", self["listeners"], distinct_ports=True)

    @property
    def broker_listeners(self) -> list[Endpoint]:
        return _without(self.listeners, self.controller_listener_names)

    @property
    def controller_listeners(self) -> list[Endpoint]:
        names = self.controller_listener_names
        return sorted((e for e in self.listeners if e.name in names), key=lambda e: names.index(e.name))

    @property
    def advertised_listeners(self) -> list[Endpoint] | None:
        """What was asked to be advertised to clients, or None."""
        given = self["advertised.listeners"]
        if given is None:
            return None
        parsed = listeners.parse_listeners("advertised.listeners", given, distinct_ports=False)
        return _without(parsed, self.controller_listener_names)

    @property
    def advertised_controller_listeners(self) -> list[Endpoint]:
        """How other nodes reach this controller, in the order of controller.listener.names."""
        given = self["advertised.listeners"] or ()
        advertised = {e.name: e for e in listeners.parse_listeners("advertised.listeners", given, distinct_ports=False)}
        voters = self.voters
        found = []
        for position, endpoint in enumerate(self.controller_listeners):
            if endpoint.name in advertised:
                found.append(advertised[endpoint.name])
            elif position == 0 and endpoint.host in ("", "0.0.0.0") and self.node_id in voters:
                found.append(Endpoint(endpoint.name, *voters[self.node_id]))
            else:
                host = "" if endpoint.host == "0.0.0.0" else endpoint.host
                found.append(Endpoint(endpoint.name, host, endpoint.port))
        return found

    @property
    def security_protocols(self) -> dict[str, str]:
        """Security protocol by listener name. Controller listeners are plaintext unless anything says otherwise."""
        protocols = listeners.parse_protocol_map(
            "listener.security.protocol.map", self["listener.security.protocol.map"]
        )
        if not self.is_set("listener.security.protocol.map"):
            used = {*self.controller_listener_names, *(e.name for e in self.listeners)}
            if not used & {"SSL", "SASL_SSL", "SASL_PLAINTEXT"}:
                protocols.update(dict.fromkeys(self.controller_listener_names, "PLAINTEXT"))
        return protocols

    @property
    def inter_broker_listener_name(self) -> str:
        return str(self["inter.broker.listener.name"] or self["security.inter.broker.protocol"]).upper()

    @property
    def voters(self) -> dict[int, tuple[str, int]]:
        """The static quorum, by node id; empty when the quorum is dynamic."""
        parsed = (parse_voter("controller.quorum.voters", entry) for entry in self["controller.quorum.voters"])
        return {node: (host, port) for node, host, port in parsed}

    @property
    def bootstrap_servers(self) -> list[tuple[str, int]]:
        name = "controller.quorum.bootstrap.servers"
        return [parse_server(name, entry) for entry in self[name]]

    @property
    def max_connections_per_ip_overrides(self) -> dict[str, int]:
        name = "max.connections.per.ip.overrides"
        return listeners.parse_ip_overrides(name, self[name])


def _without(endpoints: Iterable[Endpoint], names: list[str]) -> list[Endpoint]:
    return [endpoint for endpoint in endpoints if endpoint.name not in names]


__all__ = ["BROKER_KEYS", "BrokerConfig", "ConfigError", "base_name", "find_key", "synonyms"]
