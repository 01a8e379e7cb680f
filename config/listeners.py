"""Listener strings: `NAME://host:port`, and which security protocol a listener name has."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from pylogd.config.config_error import ConfigError

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SECURITY_PROTOCOL_IDS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
_LISTENER = r"([^:/]+)://(?:\[([0-9a-zA-Z:.%]*)\]|([0-9a-zA-Z\-%._:]*)):(-?[0-9]+)"


class Endpoint(NamedTuple):
    """One listener. An empty host means every interface."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_listener(key_name: str, text: str) -> Endpoint:
    match = re.fullmatch(_LISTENER, text)
    if match is None:
        raise ConfigError(key_name, text, "Expected a listener such as PLAINTEXT://host:9092")
    host = match[2] if match[2] is not None else match[3]
    port = int(match[4])
    if not 0 <= port <= 65535:
        raise ConfigError(key_name, text, "Expected a port between 0 and 65535")
    return Endpoint(match[1].upper(), host, port)


def parse_listeners(key_name: str, entries: Iterable[str], *, distinct_ports: bool) -> list[Endpoint]:
    """All entries, with distinct names and, unless they are an IPv4 and an IPv6 address, distinct ports."""
    endpoints = [parse_listener(key_name, entry) for entry in entries]
    text = ",".join(map(str, endpoints))
    if len({endpoint.name for endpoint in endpoints}) != len(endpoints):
        raise ConfigError(key_name, text, "Each listener must have a different name")
    by_port: dict[int, list[Endpoint]] = {}
    for endpoint in endpoints if distinct_ports else ():
        if endpoint.port:
            by_port.setdefault(endpoint.port, []).append(endpoint)
    for port, sharing in by_port.items():
        families = sorted(_family(endpoint.host) for endpoint in sharing)
        if len(sharing) > 1 and families != [4, 6]:
            raise ConfigError(
                key_name, text, f"Port {port} is used twice; only one IPv4 and one IPv6 address may share a port"
            )
    return endpoints


def _family(host: str) -> int:
    if ":" in host:
        return 6
    return 4 if re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,3}){3}", host) else 0


def parse_protocol_map(key_name: str, text: str) -> dict[str, str]:
    """`NAME:PROTOCOL,...` as a dict of upper-case names."""
    protocols: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = entry.rpartition(":")
        if not colon or not name:
            raise ConfigError(key_name, text, "Expected NAME:PROTOCOL pairs separated by commas")
        if protocol.strip().upper() not in SECURITY_PROTOCOLS:
            raise ConfigError(key_name, protocol, "Expected one of " + ", ".join(SECURITY_PROTOCOLS))
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols


def parse_ip_overrides(key_name: str, text: str) -> dict[str, int]:
    """`host:count,...` of max.connections.per.ip.overrides."""
    overrides: dict[str, int] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        host, colon, count = entry.rpartition(":")
        if not colon or not re.fullmatch(r"[0-9a-zA-Z\-%._:]+", host.strip()) or not count.strip().isdigit():
            raise ConfigError(key_name, entry, "Expected host:count pairs separated by commas")
        overrides[host.strip()] = int(count)
    return overrides
