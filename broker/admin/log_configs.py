"""What a log is configured with: its topic's overrides in the metadata, then this broker's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pylogd.config import topic_configs
from pylogd.storage.log_config import LogConfig

if TYPE_CHECKING:
    from pylogd.config.broker import BrokerConfig
    from pylogd.metadata.latest import LatestImage


class LogConfigs:
    """Topics without overrides share one."""

    def __init__(self, config: BrokerConfig, metadata: LatestImage) -> None:
        self._config = config
        self._metadata = metadata
        self._shared: LogConfig | None = None

    def of(self, topic: str) -> LogConfig:
        overrides = self._metadata.image.topic_config(topic)
        if not overrides:
            if self._shared is None:
                self._shared = LogConfig.from_values(topic_configs.resolve({}, self._config))
            return self._shared
        return LogConfig.from_values(topic_configs.resolve(overrides, self._config))

    def broker_changed(self) -> None:
        """This broker's settings are others now."""
        self._shared = None
