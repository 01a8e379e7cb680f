"""A request of a peer, with what its answer needs."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, TypeVar

R = TypeVar("R")


class Inbound(NamedTuple, Generic[R]):
    """The answer carries `token`, which is the driver's affair."""

    token: Any
    request: R
    version: int
    listener: str
