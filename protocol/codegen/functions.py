"""The two functions of a message in one version, compiled, and their source to read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pylogd.protocol.codegen.decode_writer import DecodeWriter
from pylogd.protocol.codegen.encode_writer import EncodeWriter
from pylogd.protocol.schema import Message


def make_encoder(cls: type[Message], version: int) -> Callable[..., None]:
    return EncodeWriter(cls, version).build("encode", "msg, buf, splits=None")


def make_decoder(cls: type[Message], version: int) -> Callable[..., Any]:
    return DecodeWriter(cls, version).build("decode", "view, pos=0")


def source(cls: type[Message], version: int) -> str:
    """Both functions' source, to read."""
    encode = EncodeWriter(cls, version).source("encode", "msg, buf, splits=None")
    return encode + "\n\n" + DecodeWriter(cls, version).source("decode", "view, pos=0")
