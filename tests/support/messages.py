"""All message classes, and random messages of any class and version."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from importlib import import_module
from random import Random
from typing import Any

from pylogd.protocol import wire
from pylogd.protocol.api import APIS, DATA_MODULES
from pylogd.protocol.schema import Field, Message, Struct, fields

TEXTS = ("", "a", "topic-1", "grüße", "日本", "\x00", "🙂" * 3, "x" * 126, "y" * 127, "z" * 300, "w" * 17000)
SIZES = (0, 1, 1, 2, 3)


@functools.cache
def all_messages() -> tuple[type[Message], ...]:
    names = ["headers", *(f"messages.{name}" for name in DATA_MODULES)]
    names += [f"messages.{api.module}" for api in APIS.values()]
    found: list[type[Message]] = []
    for name in names:
        for value in vars(import_module(f"pylogd.protocol.{name}")).values():
            if isinstance(value, type) and issubclass(value, Message) and value is not Message:
                found.append(value)
    return tuple(found)


def all_versions() -> Iterator[tuple[type[Message], int]]:
    for cls in all_messages():
        for version in range(cls.VERSIONS[0], cls.VERSIONS[1] + 1):
            yield cls, version


def random_message(rng: Random, cls: type[Message], version: int) -> Message:
    """A message with random values in the fields that the version has, and defaults in the others."""
    message: Message = _struct(rng, cls, version, 0)
    return message


def _struct(rng: Random, cls: type[Struct], version: int, depth: int) -> Any:
    made = cls()
    for field in fields(cls):
        # A tagged field is often left at its default: then it does not travel.
        if field.present(version) and not (field.tag >= 0 and rng.randrange(2)):
            setattr(made, field.name, _value(rng, field, version, depth))
    return made


def _value(rng: Random, field: Field, version: int, depth: int) -> Any:
    if field.nullable(version) and rng.randrange(3) == 0:
        return None
    if not field.array:
        return _single(rng, field, version, depth)
    size = SIZES[rng.randrange(len(SIZES))] if depth < 2 else rng.randrange(2)
    if not isinstance(field.kind, type) and rng.randrange(8) == 0:
        size = 15 + rng.randrange(150)  # around ready-made structs and one-byte counts
    return [_single(rng, field, version, depth + 1) for _ in range(size)]


def _single(rng: Random, field: Field, version: int, depth: int) -> Any:
    kind = field.kind
    if field.struct is not None:
        return _struct(rng, field.struct, version, depth)
    if kind is str:
        return TEXTS[rng.randrange(len(TEXTS) - (0 if depth == 0 else 1))]
    if kind is bytes or isinstance(kind, wire.RecordData):
        return rng.randbytes((0, 1, 61, 126, 127, 500)[rng.randrange(6)])
    if kind is wire.BOOL:
        return rng.randrange(2) == 1
    if kind is wire.FLOAT64:
        return (0.0, 1.5, -2.25e100)[rng.randrange(3)]
    if kind.format == "16s":
        return rng.randbytes(16)
    bits = kind.size * 8
    low, high = (0, (1 << bits) - 1) if kind.format.isupper() else (-(1 << bits - 1), (1 << bits - 1) - 1)
    return (low, high, 0, 1, rng.randrange(low, high + 1))[rng.randrange(5)]
