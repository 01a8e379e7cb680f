"""Writes the encode and decode function of one message in one version: straight-line source, compiled on first use.

Adjacent fixed-width fields, together with a following length, count or empty tag section, become one precompiled
`Struct`; lengths that fit one varint byte never leave the function; nested structs and arrays are inlined, so a message
is one function call. Values absent from the version get their defaults. To see what runs:

    python -m pylogd.protocol.codegen ProduceRequest 9

Decode trusts nothing: counts are held against the bytes that are left before anything is allocated, and reading past
the end (IndexError, struct.error) or bad UTF-8 surface as ProtocolError. Tagged fields unknown to us are skipped.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from pylogd.protocol.decode_writer import DecodeWriter
from pylogd.protocol.encode_writer import EncodeWriter
from pylogd.protocol.schema import Message


def make_encoder(cls: type[Message], version: int) -> Callable[..., None]:
    return EncodeWriter(cls, version).build("encode", "msg, buf, splits=None")


def make_decoder(cls: type[Message], version: int) -> Callable[..., Any]:
    return DecodeWriter(cls, version).build("decode", "view, pos=0")


def source(cls: type[Message], version: int) -> str:
    """Both functions' source, to read."""
    encode = EncodeWriter(cls, version).source("encode", "msg, buf, splits=None")
    return encode + "\n\n" + DecodeWriter(cls, version).source("decode", "view, pos=0")


def main() -> None:
    from pylogd.protocol.api import message_class

    name, version = sys.argv[1], int(sys.argv[2])
    print(source(message_class(name), version))


if __name__ == "__main__":
    main()
