"""A response made of several parts, each of which may come later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pylogd.runtime.deferred import Deferred


class Parts:
    """`deferred` is resolved by the last part."""

    def __init__(self, count: int, finish: Callable[[list[Any]], Any]) -> None:
        self._parts: list[Any] = [None] * count
        self._missing = count
        self._finish = finish
        self.deferred = Deferred()
        if not count:
            self.deferred.resolve(finish([]))

    def give(self, slot: int, part: Any) -> None:
        self._parts[slot] = part
        self._missing -= 1
        if not self._missing:
            self.deferred.resolve(self._finish(self._parts))
