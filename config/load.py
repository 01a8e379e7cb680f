"""From files and `--set` to a BrokerConfig.

Files are TOML with Kafka's property names (quoted, or dotted keys that flatten to the same name; arrays for lists) or
Kafka's own server.properties, told apart by the file name (`.properties`) or else by trying TOML first.

A file that names `process.roles` is complete: it gets Kafka's defaults and nothing else. Without it the file (or the
`--set` options alone) only adjusts the embedded default, one combined node on 127.0.0.1:9092.

Unknown keys: an error in TOML and in `--set`, where a typing mistake is the likely reason. In server.properties Kafka
ignores them, and plugins and older versions leave theirs there, so they are kept and reported in a warning, unless
the name is so close to a known one that it must be a mistake. Keys of one listener (`listener.name.<name>.<key>`) and
of plugins (`config.providers.`, the prefixes of tiered storage classes) are always welcome.

Values may refer to `${env:NAME}`, `${file:PATH:KEY}` (a properties file) and `${dir:PATH:FILE}` (a file's content).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pylogd.config.broker import BROKER_KEYS, BrokerConfig, find_key
from pylogd.config.check import check_broker
from pylogd.config.config_error import ConfigError, did_you_mean
from pylogd.config.properties import parse_properties
from pylogd.config.toml_lines import toml_lines

EMBEDDED_DEFAULT: Final[dict[str, str]] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "./pylogd-data",
    # A single node cannot hold the three replicas that Kafka's defaults ask for.
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}

# Names that older Kafka versions knew: welcome in an old server.properties, but without effect.
_RETIRED: Final = frozenset(
    (
        "advertised.host.name",
        "advertised.port",
        "auto.include.jmx.reporter",
        "broker.id.generation.enable",
        "control.plane.listener.name",
        "controlled.shutdown.max.retries",
        "controlled.shutdown.retry.backoff.ms",
        "delegation.token.master.key",
        "group.coordinator.new.enable",
        "group.consumer.enable",
        "host.name",
        "inter.broker.protocol.version",
        "leader.imbalance.per.broker.percentage",
        "log.message.downconversion.enable",
        "log.message.format.version",
        "log.message.timestamp.difference.max.ms",
        "metadata.log.segment.min.bytes",
        "offsets.commit.required.acks",
        "port",
        "quota.consumer.default",
        "quota.producer.default",
        "reserved.broker.max.id",
    )
)
_RETIRED_PREFIXES: Final = ("zookeeper.", "password.encoder.", "confluent.")
_REFERENCE = r"\$\{(env|file|dir):([^}]*)\}"


class Entry(NamedTuple):
    """A key's text, where it stands, and whether an unknown name may pass there."""

    value: str
    place: str
    lenient: bool


class LoadError(Exception):
    """A configuration that cannot be used. The message is one line with the place, the key and what was expected."""


class Loaded(NamedTuple):
    config: BrokerConfig
    warnings: list[str]


def load(
    path: str | None = None,
    text: str | None = None,
    overrides: Sequence[str] = (),
    *,
    environ: Mapping[str, str] | None = None,
    read: Callable[[str], str] | None = None,
) -> Loaded:
    """Build the configuration from a file's text, `key=value` overrides, or the embedded default alone.

    `environ` and `read` serve references in values; without them a reference is an error.
    """
    entries: dict[str, Entry] = {}
    if text is not None:
        entries.update(parse_text(path or "config", text))
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals or not key.strip():
            raise LoadError(f"--set {override}: expected key=value")
        entries[key.strip()] = Entry(value, "--set", False)
    _resolve_references(entries, environ, read)
    _add_embedded_default(entries)
    warnings = _check_names(entries)
    try:
        config = BrokerConfig(
            {name: entry.value for name, entry in entries.items()},
            {name: entry.place for name, entry in entries.items()},
        )
        warnings += check_broker(config)
    except ConfigError as error:
        entry = entries.get(error.name)
        raise LoadError(f"{entry.place}: {error}" if entry else str(error)) from None
    return Loaded(config, warnings)


def parse_text(path: str, text: str) -> dict[str, Entry]:
    """Entries of a TOML or a properties file."""
    if not path.endswith(".properties"):
        import tomllib  # costs milliseconds; not needed for the embedded default

        try:
            return _toml_entries(path, text, tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            if path.endswith(".toml") or '"' in text:
                raise LoadError(f"{path}: not valid TOML: {error}") from None
    try:
        found = parse_properties(text)
    except ValueError as error:
        raise LoadError(f"{path}: {error}") from None
    return {name: Entry(value, f"{path}:{line}", True) for name, (value, line) in found.items()}


def _toml_entries(path: str, text: str, document: dict[str, Any]) -> dict[str, Entry]:
    lines = toml_lines(text)
    entries: dict[str, Entry] = {}

    def flatten(prefix: str, table: dict[str, Any]) -> None:
        for part, value in table.items():
            name = prefix + part
            place = f"{path}:{lines[name]}" if name in lines else path
            if isinstance(value, dict):
                flatten(name + ".", value)
            elif name in entries:
                raise LoadError(f"{place}: {name} is set twice, under two spellings")
            else:
                entries[name] = Entry(_toml_text(name, place, value), place, False)

    flatten("", document)
    return entries


def _toml_text(name: str, place: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list) and all(isinstance(item, str | int | float) for item in value):
        key = find_key(name)
        if key is not None and key.type != "list":
            raise LoadError(f"{place}: {name} takes one value, not an array")
        return ",".join(_toml_text(name, place, item) for item in value)
    raise LoadError(f"{place}: {name} must be a string, number, boolean or array, not {type(value).__name__}")


def _resolve_references(
    entries: dict[str, Entry], environ: Mapping[str, str] | None, read: Callable[[str], str] | None
) -> None:
    for name, entry in entries.items():
        if "${" not in entry.value:
            continue

        def substitute(match: re.Match[str], name: str = name, entry: Entry = entry) -> str:
            try:
                return _lookup(match[1], match[2], environ or {}, read)
            except (KeyError, OSError, ValueError) as error:
                raise LoadError(f"{entry.place}: {name}: cannot resolve {match[0]}: {error}") from None

        entries[name] = entry._replace(value=re.sub(_REFERENCE, substitute, entry.value))


def _lookup(provider: str, argument: str, environ: Mapping[str, str], read: Callable[[str], str] | None) -> str:
    if provider == "env":
        name = argument.rpartition(":")[2]
        if name not in environ:
            raise KeyError(f"environment variable {name} is not set")
        return environ[name]
    path, _, key = argument.rpartition(":")
    if read is None or not path:
        raise ValueError(f"expected ${{{provider}:PATH:{'KEY' if provider == 'file' else 'FILE'}}}")
    if provider == "dir":
        return read(f"{path}/{key}")
    found = parse_properties(read(path))
    if key not in found:
        raise KeyError(f"{path} has no key {key}")
    return found[key][0]


def _add_embedded_default(entries: dict[str, Entry]) -> None:
    if "process.roles" in entries:
        return
    for name, value in EMBEDDED_DEFAULT.items():
        if name == "node.id" and "broker.id" in entries:
            continue
        if name == "log.dirs" and "log.dir" in entries:
            continue
        entries.setdefault(name, Entry(value, "embedded default", False))
    names = [name.strip().upper() for name in entries["controller.listener.names"].value.split(",")]
    listening = entries["listeners"]
    if not any(part.strip().upper().startswith(f"{name}://") for part in listening.value.split(",") for name in names):
        # Only broker listeners were given: the controller of a node that is alone needs no fixed port.
        entries["listeners"] = listening._replace(value=f"{listening.value},{names[0]}://127.0.0.1:0")


def _check_names(entries: dict[str, Entry]) -> list[str]:
    warnings = []
    prefixes = ["config.providers."]
    for name in ("remote.log.storage.manager.impl.prefix", "remote.log.metadata.manager.impl.prefix"):
        prefixes.append(entries[name].value if name in entries else BROKER_KEYS[name].default)
    for name, entry in entries.items():
        key = find_key(name)
        if key is not None and "dynamic-only" in key.flags:
            raise LoadError(f"{entry.place}: {name} can only be set dynamically, with kafka-configs")
        if key is not None or name.startswith(tuple(prefixes)):
            continue
        if name in _RETIRED or name.startswith(_RETIRED_PREFIXES):
            if not entry.lenient:
                raise LoadError(f"{entry.place}: {name} is no longer a Kafka configuration; remove it")
            warnings.append(f"{entry.place}: {name} is no longer a Kafka configuration and has no effect")
            continue
        near = did_you_mean(name, BROKER_KEYS, 0.93 if entry.lenient else 0.75)
        if near or not entry.lenient:
            hint = f"; did you mean {near}?" if near else ""
            raise LoadError(f"{entry.place}: unknown configuration {name}{hint}")
        warnings.append(f"{entry.place}: unknown configuration {name} is ignored")
    return warnings
