"""Settings of a consumer group: its own, within the broker's bounds, or the broker's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pylogd.controller.image import ClusterImage

_GROUP_RESOURCE = 32


class Settings:
    def __init__(self, config: Mapping[str, Any], image: Callable[[], ClusterImage]) -> None:
        self._config = config
        self._image = image

    def of_group(self, group_id: str, name: str) -> int:
        """`name` without the words that say whose it is, such as session.timeout.ms."""
        overrides = self._image().config(_GROUP_RESOURCE, group_id)
        own = overrides.get(f"consumer.{name}") if overrides else None
        if own is None:
            value: int = self._config[f"group.consumer.{name}"]
            return value
        low, high = self._config[f"group.consumer.min.{name}"], self._config[f"group.consumer.max.{name}"]
        return max(low, min(int(own), high))
