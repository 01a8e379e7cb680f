"""Settings by Kafka's names, for whoever reads some of them: a broker's configuration, or a plain dict in a test."""

from __future__ import annotations

from typing import Any, Protocol


class Values(Protocol):
    def __getitem__(self, name: str, /) -> Any: ...
