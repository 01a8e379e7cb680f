"""Java's properties syntax, in which Kafka writes server.properties and meta.properties.

Reading follows java.util.Properties: `#` and `!` start comments, a key ends at the first unescaped `=`, `:` or blank,
a backslash escapes (`\\t \\n \\r \\f`, `\\uXXXX`, anything else stands for itself) and joins a line with the next.
"""

from __future__ import annotations

from collections.abc import Iterator

_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, tuple[str, int]]:
    """Value and line number by key; the last one of equal keys wins, as in Java."""
    found: dict[str, tuple[str, int]] = {}
    for line, number in _logical_lines(text):
        end = 0
        while end < len(line) and line[end] not in "=:" + _BLANK:
            end += 2 if line[end] == "\\" else 1
        start = end
        while start < len(line) and line[start] in _BLANK:
            start += 1
        if start < len(line) and line[start] in "=:":
            start += 1
            while start < len(line) and line[start] in _BLANK:
                start += 1
        found[_unescape(line[:end], number)] = (_unescape(line[start:], number), number)
    return found


def _logical_lines(text: str) -> Iterator[tuple[str, int]]:
    """Lines with continuations joined, without comments and blank lines, and the number of their first line."""
    joined: str | None = None
    first = 0
    for number, raw in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        line = raw.lstrip(_BLANK)
        if joined is None:
            if not line or line[0] in "#!":
                continue
            joined, first = "", number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            joined += line[:-1]
            continue
        yield joined + line, first
        joined = None
    if joined is not None:
        yield joined, first


def _unescape(text: str, number: int) -> str:
    if "\\" not in text:
        return text
    out = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char != "\\" or position == len(text):
            if char != "\\":
                out.append(char)
            continue
        char = text[position]
        position += 1
        if char == "u":
            digits = text[position : position + 4]
            if len(digits) != 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
                raise ValueError(f"line {number}: \\u{digits} is not a character; expected four hex digits")
            out.append(chr(int(digits, 16)))
            position += 4
        else:
            out.append(_ESCAPES.get(char, char))
    return "".join(out)


def format_properties(values: dict[str, str]) -> str:
    """Lines of `key=value` with Java's escapes, in the given order."""
    return "".join(f"{_escape(key, True)}={_escape(value, False)}\n" for key, value in values.items())


def _escape(text: str, is_key: bool) -> str:
    out = []
    for index, char in enumerate(text):
        if char in "\t\n\r\f":
            out.append("\\" + {"\t": "t", "\n": "n", "\r": "r", "\f": "f"}[char])
        elif char in "=:#!\\" or (char == " " and (is_key or index == 0)):
            out.append("\\" + char)
        elif not " " <= char <= "~":
            out.extend(f"\\u{unit:04X}" for unit in _utf16(char))
        else:
            out.append(char)
    return "".join(out)


def _utf16(char: str) -> list[int]:
    raw = char.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(raw[i : i + 2], "big") for i in range(0, len(raw), 2)]
