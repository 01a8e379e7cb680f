from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pylogd.protocol import uuids


@given(st.binary(min_size=16, max_size=16))
def test_text_is_url_safe_base64_without_padding(value: bytes) -> None:
    text = uuids.to_text(value)
    assert text == base64.urlsafe_b64encode(value).decode().rstrip("=")
    assert uuids.from_text(text) == value


def test_known_values() -> None:
    assert uuids.to_text(uuids.ZERO) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert uuids.to_text(uuids.METADATA_TOPIC_ID) == "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.mark.parametrize(
    "text", ["", "AAAA", "AAAAAAAAAAAAAAAAAAAAA!", "é" * 22, "A" * 23, "A" * 24, "AAAAAAAAAAAAAAAAAAAAAA=="]
)
def test_not_a_uuid(text: str) -> None:
    with pytest.raises(ValueError, match="not a uuid"):
        uuids.from_text(text)


def test_wrong_size() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        uuids.to_text(b"short")


def test_reserved() -> None:
    assert uuids.is_reserved(uuids.ZERO)
    assert uuids.is_reserved(uuids.LOST_DIRECTORY)
    assert uuids.is_reserved(b"\xf8" + bytes(15))  # starts with a dash, which command lines take for an option
    assert not uuids.is_reserved(b"\x01" * 16)
