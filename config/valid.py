"""The checks behind the `valid` column of a config table (the notation is described in definition.py)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from pylogd.config.config_error import ConfigError
from pylogd.config.java_double import double_text

_DURATION = r"P(?=.)([0-9]+D)?(T(?=.)([0-9]+H)?([0-9]+M)?([0-9]+(\.[0-9]{0,9})?S)?)?"


def is_integer(text: str) -> bool:
    """Digits with an optional sign; no underscores, spaces or other scripts' digits, which int() would take."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    return digits.isascii() and digits.isdigit()


def check(name: str, rule: str, value: Any) -> None:
    """Raise ConfigError unless the value of the key lies in its valid range."""
    if rule == "*":
        return
    if rule.startswith("list"):
        _check_list(name, value, rule)
    elif rule.endswith("}"):
        _check_choice(name, value, rule)
    elif rule in _NAMED:
        _NAMED[rule][0](name, value)
    else:
        _check_range(name, value, rule)


def valid_text(rule: str) -> str:
    """The valid values, in the notation of Kafka's own documentation."""
    if rule == "*":
        return ""
    if rule in _NAMED:
        return _NAMED[rule][1]
    if "{" in rule:
        choices = "[" + ", ".join(_choices(rule)) + "]"
        return "(case insensitive) " + choices if rule.startswith("i{") else choices
    if rule.startswith("list"):
        return ""
    parts = []
    for part in reversed(rule.split("|")):
        low, dots, high = part.partition("..")
        parts.append(part if not dots else f"[{low},...,{high}]" if high else f"[{low},...]")
    return " or ".join(parts)


def _choices(rule: str) -> list[str]:
    return rule[rule.index("{") + 1 : -1].split(",")


def _check_list(name: str, value: list[str], rule: str) -> None:
    if not value and not rule.startswith("list?"):
        allowed = ", ".join(_choices(rule)) if "{" in rule else "any non-empty value"
        raise ConfigError(
            name, "", "must not be empty", f"Configuration '{name}' must not be empty. Valid values include: {allowed}"
        )
    if "" in value:
        message = f"Configuration '{name}' values must not be empty."
        raise ConfigError(name, ",".join(value), "no empty entries", message)
    if "{" in rule:
        choices = _choices(rule)
        for item in value:
            if item not in choices:
                raise ConfigError(name, item, "String must be one of: " + ", ".join(choices))


def _check_choice(name: str, value: str, rule: str) -> None:
    choices = _choices(rule)
    if rule.startswith("i{"):
        if value.upper() not in choices:
            raise ConfigError(name, value, "String must be one of (case insensitive): " + ", ".join(choices))
    elif value not in choices:
        raise ConfigError(name, value, "String must be one of: " + ", ".join(choices))


def _check_range(name: str, value: float, rule: str) -> None:
    failure = ""
    for part in rule.split("|"):
        low, dots, high = part.partition("..")
        if not dots:
            if value == float(part):
                return
        elif value < float(low):
            failure = f"Value must be at least {low}"
        elif high and value > float(high):
            failure = f"Value must be no more than {high}"
        else:
            return
    if "|" in rule:
        failure = f"Value must be in {valid_text(rule)}"
    raise ConfigError(name, double_text(value) if isinstance(value, float) else str(value), failure)


def _check_nonempty(name: str, value: str) -> None:
    if not value:
        raise ConfigError(name, value, "String must be non-empty")


def _check_nonnull(name: str, value: object) -> None:
    """Text is never null."""


def parse_voter(key_name: str, entry: str) -> tuple[int, str, int]:
    """`id@host:port` of controller.quorum.voters."""
    identity, at, address = entry.partition("@")
    host, colon, port = address.rpartition(":")
    if not at or not colon or not host or not is_integer(identity) or not port.isascii() or not port.isdigit():
        raise ConfigError(key_name, entry, "Each entry should be in the form id@host:port")
    return int(identity), host.strip("[]"), int(port)


def parse_server(key_name: str, entry: str) -> tuple[str, int]:
    """`host:port` of controller.quorum.bootstrap.servers."""
    host, colon, port = entry.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit():
        raise ConfigError(key_name, entry, "Each entry should be in the form host:port")
    return host.strip("[]"), int(port)


def _check_voters(name: str, value: list[str]) -> None:
    for entry in value:
        parse_voter(name, entry)


def _check_servers(name: str, value: list[str]) -> None:
    for entry in value:
        parse_server(name, entry)


def _check_replicas(name: str, value: list[str]) -> None:
    if "".join(value) != "*" and not all(re.fullmatch("([0-9]+:[0-9]+)?", item) for item in value):
        raise ConfigError(
            name, ",".join(value), "must be * or a list [partitionId]:[brokerId],[partitionId]:[brokerId],..."
        )


def _check_reset(name: str, value: str) -> None:
    kind, _, duration = value.partition(":")
    if value.lower() in ("earliest", "latest") or (
        kind.lower() == "by_duration" and re.fullmatch(_DURATION, duration.upper())
    ):
        return
    raise ConfigError(name, value, "must be 'earliest', 'latest' or 'by_duration:<PnDTnHnMn.nS>'")


_NAMED: Final[dict[str, tuple[Callable[[str, Any], None], str]]] = {
    "nonempty": (_check_nonempty, "non-empty string"),
    "nonnull": (_check_nonnull, "non-null string"),
    "voters": (_check_voters, "non-empty list"),
    "servers": (_check_servers, "non-empty list"),
    "replicas": (_check_replicas, "[partitionId]:[brokerId],[partitionId]:[brokerId],..."),
    "reset": (_check_reset, "[latest, earliest, by_duration:PnDTnHnMn.nS]"),
}
