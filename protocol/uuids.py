"""Kafka's uuids: topic ids, directory ids, cluster ids. Inside pylogd they are raw 16-byte `bytes`."""

from __future__ import annotations

from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from typing import Final

ZERO: Final = bytes(16)
METADATA_TOPIC_ID: Final = bytes(15) + b"\x01"

# Directory ids with a meaning of their own (KIP-858); a log directory is never given one of them.
MIGRATING_DIRECTORY: Final = ZERO
UNASSIGNED_DIRECTORY: Final = bytes(15) + b"\x01"
LOST_DIRECTORY: Final = bytes(15) + b"\x02"
RESERVED_COUNT: Final = 100

_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_", b"+/")


def to_text(value: bytes) -> str:
    """The 22 characters that Kafka prints: url-safe base64 without its padding."""
    if len(value) != 16:
        raise ValueError(f"a uuid has 16 bytes, not {len(value)}")
    return b2a_base64(value, newline=False)[:22].translate(_TO_URL).decode()


def from_text(text: str) -> bytes:
    """Inverse of `to_text`; ValueError for anything that does not hold exactly 16 bytes."""
    try:
        value = a2b_base64(text.encode("ascii").translate(_FROM_URL) + b"==", strict_mode=True)
    except (Base64Error, UnicodeEncodeError):
        raise ValueError(f"not a uuid: {text!r}") from None
    if len(value) != 16:
        raise ValueError(f"not a uuid: {text!r}")
    return value


def is_reserved(value: bytes) -> bool:
    """Kafka keeps the first hundred values for itself; a random id must not be one of them, nor start with a dash."""
    return value < bytes(15) + bytes([RESERVED_COUNT]) or to_text(value).startswith("-")


def version_4(raw: bytes) -> bytes:
    """16 random bytes as a random (version 4) uuid; none of these is reserved."""
    value = bytearray(raw)
    value[6] = value[6] & 0x0F | 0x40
    value[8] = value[8] & 0x3F | 0x80
    return bytes(value)
