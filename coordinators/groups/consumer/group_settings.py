"""Settings of a consumer group: its own, within the broker's bounds, or the broker's."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pylogd.config.values import Values
    from pylogd.metadata.latest import LatestImage

_GROUP_RESOURCE = 32


class _Setting(NamedTuple):
    name: str
    low: str
    high: str


SESSION_TIMEOUT_MS = _Setting(
    "consumer.session.timeout.ms",
    "group.consumer.min.session.timeout.ms",
    "group.consumer.max.session.timeout.ms",
)
HEARTBEAT_INTERVAL_MS = _Setting(
    "consumer.heartbeat.interval.ms",
    "group.consumer.min.heartbeat.interval.ms",
    "group.consumer.max.heartbeat.interval.ms",
)
ASSIGNMENT_INTERVAL_MS = _Setting(
    "consumer.assignment.interval.ms",
    "group.consumer.min.assignment.interval.ms",
    "group.consumer.max.assignment.interval.ms",
)


class Settings:
    def __init__(self, config: Values, metadata: LatestImage) -> None:
        self._config = config
        self._metadata = metadata

    def of_group(self, group_id: str, setting: _Setting) -> int:
        own = self._metadata.image.config(_GROUP_RESOURCE, group_id).get(setting.name)
        if own is None:
            value: int = self._config[f"group.{setting.name}"]
            return value
        # The bounds may have changed since it was set.
        low: int = self._config[setting.low]
        high: int = self._config[setting.high]
        return max(low, min(int(own), high))
