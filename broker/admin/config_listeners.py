"""Configurations that change in the metadata take effect: this broker's own, and those of its logs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from pylogd.config import dynamic
from pylogd.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, ClusterImage

if TYPE_CHECKING:
    from pylogd.broker.admin.log_configs import LogConfigs
    from pylogd.config.host import Host
    from pylogd.metadata.delta import ImageDelta
    from pylogd.metadata.latest import LatestImage
    from pylogd.storage.directories.log_manager import LogManager

logger = logging.getLogger(__name__)


class BrokerConfigs:
    """Listener for dynamic settings of the cluster and of this broker."""

    def __init__(self, host: Host, metadata: LatestImage, logs: LogManager, log_configs: LogConfigs) -> None:
        self._host = host
        self._metadata = metadata
        self._logs = logs
        self._log_configs = log_configs
        self._resources = ((BROKER_RESOURCE, ""), (BROKER_RESOURCE, str(host.broker_id)))

    def apply(self, delta: ImageDelta, image: ClusterImage) -> Iterator[partial[None]]:
        if any(resource in delta.configs for resource in self._resources):
            yield partial(self.take_effect)

    def take_effect(self) -> None:
        """Every topic that inherits from the settings follows them."""
        image = self._metadata.image
        default, own = (image.config(*resource) for resource in self._resources)
        refused = dynamic.apply(self._host.config, default=default, broker=own)
        for name, reason in refused.items():
            logger.warning("dynamic config %s is not used: %s", name, reason)
        self._log_configs.broker_changed()
        for topic in dict.fromkeys(log.topic for log in self._logs.loaded()):
            self._logs.update_config(topic, self._log_configs.of(topic))


class TopicConfigs:
    """Listener for the overrides of topics. It is told when new replicas have their logs."""

    def __init__(self, metadata: LatestImage, logs: LogManager, log_configs: LogConfigs) -> None:
        self._metadata = metadata
        self._logs = logs
        self._log_configs = log_configs

    def apply(self, delta: ImageDelta, image: ClusterImage) -> Iterator[partial[None]]:
        for resource_type, name in delta.configs:
            if resource_type == TOPIC_RESOURCE:
                yield partial(self._update, name)

    def _update(self, topic: str) -> None:
        if topic in self._metadata.image.topics:
            self._logs.update_config(topic, self._log_configs.of(topic))
