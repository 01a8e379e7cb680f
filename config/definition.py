"""What a config key is: its type, default, valid values, and how a value is parsed and printed.

Keys are written as tables (`keys/`, `topic_configs.py`, `group_configs.py`), one row per key and its
description indented below:

    name type default valid importance [flags...]
        description

`default`: `-` the key is required, `null` no value, `""` empty. `valid`: `*` anything, `1..` and `1..9` ranges,
`-1|1..9` alternatives, `{a,b}` one of, `i{a,b}` the same without regard to case, `list` a non-empty list (`list?` may
be empty, `list{a,b}` of these values) of which duplicates are dropped, and the named checks of valid.py.
`flags`: `cluster-wide` or `per-broker` (changeable while running, for all brokers or for one), `dynamic-only` (cannot
be set in a file), `internal` (not shown), `inert` (accepted for compatibility; nothing reads it yet).
Lines starting with `# ` name the group of the rows that follow.

Tables are cut into rows on import and a row's `valid` is understood only when a value is checked, which keeps the
import of several hundred keys around a millisecond. For the same reason patterns are compiled when first used.
"""

from __future__ import annotations

import re
from typing import Any, Final

from pylogd.config.config_error import ConfigError
from pylogd.config.java_double import double_text
from pylogd.config.valid import check, is_integer

_FLOAT = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?"
_INTEGER_BITS = {"int": 32, "long": 64, "short": 16}
_UNITS = (
    (".ms", "milliseconds"), (".millis", "milliseconds"), (".minutes", "minutes"), (".hours", "hours"),
    (".seconds", "seconds"), (".secs", "seconds"), (".bytes", "bytes"), (".bytes.per.second", "bytes per second"),
)  # fmt: skip

REQUIRED: Final = "-"


class ConfigKey:
    """One row of a table."""

    __slots__ = ("_default", "default_text", "doc", "flags", "group", "importance", "name", "type", "valid")

    def __init__(self, row: list[str], group: str, doc: str) -> None:
        self.name, self.type, self.default_text, self.valid, self.importance = row[:5]
        self.flags = row[5:]
        self.group = group
        self.doc = doc
        self._default: Any = self  # not parsed yet

    @property
    def required(self) -> bool:
        return self.default_text == REQUIRED

    @property
    def internal(self) -> bool:
        return "internal" in self.flags

    @property
    def sensitive(self) -> bool:
        return self.type == "password"

    @property
    def update_mode(self) -> str:
        for flag in self.flags:
            if flag in ("cluster-wide", "per-broker"):
                return flag
        return "read-only"

    @property
    def unit(self) -> str | None:
        for suffix, unit in _UNITS:
            if self.name.endswith(suffix) and self.type in ("int", "long", "short"):
                return unit
        return None

    @property
    def default(self) -> Any:
        """The typed default; None when there is none."""
        if self._default is self:
            text = self.default_text
            if text in (REQUIRED, "null"):
                self._default = None
            else:
                self._default = self.convert("" if text == '""' else text)
        return self._default

    def convert(self, text: str) -> Any:
        """Text to a value of the key's type, without looking at the valid range."""
        kind = self.type
        trimmed = text.strip()
        if kind in _INTEGER_BITS:
            if is_integer(trimmed):
                number = int(trimmed)
                limit = 1 << (_INTEGER_BITS[kind] - 1)
                if -limit <= number < limit:
                    return number
            raise ConfigError(self.name, text, f"Not a number of type {kind.upper()}{self._unit_hint()}")
        if kind == "boolean":
            lowered = trimmed.lower()
            if lowered in ("true", "false"):
                return lowered == "true"
            raise ConfigError(self.name, text, "Expected true or false")
        if kind == "list":
            items = [item.strip() for item in trimmed.split(",")] if trimmed else []
            return list(dict.fromkeys(items)) if self.valid.startswith("list") else items
        if kind == "double":
            if re.fullmatch(_FLOAT, trimmed):
                return float(trimmed.rstrip("dDfF"))
            raise ConfigError(self.name, text, "Not a number of type DOUBLE")
        return trimmed  # string, class, password

    def _unit_hint(self) -> str:
        return f" ({self.unit}, digits only)" if self.unit else ""

    def parse(self, text: str) -> Any:
        """Text to a checked value of the key's type."""
        value = self.convert(text)
        check(self.name, self.valid, value)
        return value

    def to_text(self, value: Any) -> str | None:
        """A value as Kafka prints it."""
        if value is None:
            return None
        if self.type == "boolean":
            return "true" if value else "false"
        if self.type == "list":
            return ",".join(value)
        if self.type == "double":
            return double_text(value)
        return str(value)


def parse_table(text: str) -> dict[str, ConfigKey]:
    keys: dict[str, ConfigKey] = {}
    group = ""
    row: list[str] = []
    for line in text.splitlines():
        if line.startswith("    "):
            keys[row[0]] = ConfigKey(row, group, line[4:])
        elif line.startswith("# "):
            group = line[2:]
        elif line:
            row = line.split()
    return keys
