"""Where the keys of a TOML text are: tomllib does not tell, and an error without a place is half an error."""

from __future__ import annotations

import re

_KEY = r"""\s*((?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+))*)\s*"""


def toml_lines(text: str) -> dict[str, int]:
    """Line numbers of dotted keys and of table headers."""
    lines: dict[str, int] = {}
    prefix = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(rf"\s*\[{_KEY}\]", line):
            lines.setdefault(_name(header[1]), number)
            prefix = _name(header[1]) + "."
        elif assignment := re.match(rf"{_KEY}=", line):
            lines.setdefault(prefix + _name(assignment[1]), number)
    return lines


def _name(dotted: str) -> str:
    parts = re.findall(r"""\s*(?:"([^"]*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*\.?""", dotted)
    return ".".join("".join(part) for part in parts)
