"""Encode and decode any message class in any of its versions. The functions behind it come from `codegen`, made on the
first use of a message and version and kept on the class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.schema import Message

M = TypeVar("M", bound=Message)
Buffer = bytes | bytearray | memoryview
Splits = list[tuple[int, Any]]
Encoder = Callable[[Any, bytearray, Splits | None], None]


def encoder(cls: type[Message], version: int) -> Encoder:
    """`fn(msg, buf, splits)` that appends to `buf`. Record data that should not be copied is left out: `splits` gets
    `(position in buf, data)` for each; with `splits` None everything must be bytes-like and is copied."""
    try:
        return cls._encoders[version]
    except KeyError:
        from pylogd.protocol.codegen.functions import make_encoder

        _check_version(cls, version)
        made = cls._encoders[version] = make_encoder(cls, version)
        return made


def decoder(cls: type[M], version: int) -> Callable[[Buffer, int], tuple[M, int]]:
    """`fn(view, pos)` that returns the message and the position behind it."""
    try:
        return cls._decoders[version]
    except KeyError:
        from pylogd.protocol.codegen.functions import make_decoder

        _check_version(cls, version)
        made = cls._decoders[version] = make_decoder(cls, version)
        return made


def encode(msg: Message, version: int) -> bytes:
    buf = bytearray()
    encoder(type(msg), version)(msg, buf, None)
    return bytes(buf)


def decode(cls: type[M], version: int, view: Buffer, pos: int = 0) -> tuple[M, int]:
    """The message at `pos` and the position behind it. `view` should hold little more than the message: one without
    records is read from a copy. ProtocolError if the bytes are malformed."""
    return decoder(cls, version)(view, pos)


def _check_version(cls: type[Message], version: int) -> None:
    first, last = cls.VERSIONS
    if not first <= version <= last:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{cls.__name__} has versions {first} to {last}, not {version}")
