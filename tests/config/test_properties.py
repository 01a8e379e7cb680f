"""Java's properties syntax, both ways."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pylogd.config.properties import format_properties, parse_properties


@pytest.mark.parametrize(
    ("text", "key", "value", "line"),
    [
        ("a=b", "a", "b", 1),
        ("  a = b ", "a", "b ", 1),
        ("a:b", "a", "b", 1),
        ("a b=c", "a", "b=c", 1),
        ("a   :  b", "a", "b", 1),
        ("a", "a", "", 1),
        ("a=", "a", "", 1),
        ("# comment\n! another\n\na=b", "a", "b", 4),
        ("a=one,\\\n    two,\\\n    three", "a", "one,two,three", 1),
        ("a=b\\\\\nc=d", "a", "b\\", 1),
        ("a\\=b=c", "a=b", "c", 1),
        ("a\\ b=c", "a b", "c", 1),
        ("a=tab\\there\\u0041", "a", "tab\thereA", 1),
        ("a=C\\:\\\\dir", "a", "C:\\dir", 1),
        ("a=# not a comment", "a", "# not a comment", 1),
        ("a=1\r\nb=2\r\n", "b", "2", 2),
        ("a=1\na=2", "a", "2", 2),
        ("a=b\\", "a", "b", 1),
    ],
)
def test_lines_are_read_as_java_reads_them(text: str, key: str, value: str, line: int) -> None:
    assert parse_properties(text)[key] == (value, line)


def test_a_broken_escape_names_its_line() -> None:
    with pytest.raises(ValueError, match="line 2"):
        parse_properties("a=b\nc=\\u00zz")


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_what_is_written_is_read_back(values: dict[str, str]) -> None:
    values = {_encodable(key): _encodable(value) for key, value in values.items()}
    read = parse_properties(format_properties(values))
    # Characters outside the basic plane travel as two escapes.
    assert {_joined(k): _joined(v) for k, (v, _) in read.items()} == values


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def _joined(text: str) -> str:
    return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be")
