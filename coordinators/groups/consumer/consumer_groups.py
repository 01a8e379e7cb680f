"""The consumer groups of a shard, with what every decision about them looks at: settings, topics and their hashes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pylogd.config.values import Values
from pylogd.coordinators.groups.consumer.consumer_group import ConsumerGroup
from pylogd.coordinators.groups.consumer.group_settings import Settings
from pylogd.coordinators.groups.consumer.subscribed_topics import TopicHashes
from pylogd.coordinators.groups.group import Group
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages import group_records as records

if TYPE_CHECKING:
    from pylogd.coordinators.shard.effects import Effects
    from pylogd.metadata.image import ClusterImage
    from pylogd.metadata.latest import LatestImage

logger = logging.getLogger(__name__)


class ConsumerGroups:
    """`groups` is shared with the other protocols."""

    def __init__(self, groups: dict[str, Group], config: Values, metadata: LatestImage) -> None:
        self.groups = groups
        self.config = config
        self._metadata = metadata
        self.settings = Settings(config, metadata)
        self.hashes = TopicHashes()

    @property
    def image(self) -> ClusterImage:
        return self._metadata.image

    def get(self, group_id: str) -> ConsumerGroup | None:
        group = self.groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def find(self, group_id: str) -> ConsumerGroup:
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if not isinstance(group, ConsumerGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        return group

    def hash_of(self, group: ConsumerGroup) -> int:
        """Of the topics it subscribes to, as they are now."""
        return self.hashes.of_group(self._metadata.image, group.subscribed)

    def bump(self, effects: Effects, group: ConsumerGroup, hash_: int) -> None:
        """The group enters its next epoch."""
        epoch = group.epoch + 1
        effects.write(
            records.ConsumerGroupMetadataKey(group.group_id),
            records.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=hash_),
        )
        logger.info("group %s is in epoch %d with %d members", group.group_id, epoch, len(group.members))
