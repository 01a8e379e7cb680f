"""A row of the table of APIs: where one is handled, at which versions, and what answers its repetitions."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple


class Repeats(NamedTuple):
    """Where the templates of an API are, and from which version on there are any."""

    module: str
    name: str
    since: int

    def load(self) -> Callable[..., Any]:
        """A class of templates, imported when the first connection needs it."""
        found: Callable[..., Any] = getattr(import_module(f"pylogd.broker.{self.module}"), self.name)
        return found


class Handler(NamedTuple):
    """Where an API is handled and at which versions. `hidden` is served but not advertised; what `works_ahead` starts
    before earlier requests of the same API are answered."""

    module: str
    first: int
    last: int
    hidden: bool = False
    works_ahead: bool = False
    repeats: Repeats | None = None

    def load(self) -> ModuleType:
        """The module, imported on first use so that start-up pays only for what is asked."""
        return import_module(f"pylogd.broker.handlers.{self.module}")
