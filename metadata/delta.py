"""What a run of metadata records changed, so that a broker looks only at that instead of at the whole image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pylogd.metadata.registrations import Topic

if TYPE_CHECKING:
    from pylogd.metadata.image import ClusterImage

Resource = tuple[int, str]


class ImageDelta:
    """Collected while records are replayed; names what changed, the image holds the new values.

    A topic deleted and created again under the same name has two ids, so it appears on both sides.
    """

    __slots__ = (
        "access",
        "brokers",
        "configs",
        "controllers",
        "deleted_topics",
        "features",
        "new_topics",
        "partitions",
        "producer_ids",
        "quotas",
    )

    def __init__(self) -> None:
        self.new_topics: set[bytes] = set()
        self.deleted_topics: dict[bytes, Topic] = {}
        #: topic id -> partitions created or changed; a dict, so that they are walked in the order of their records
        self.partitions: dict[bytes, dict[int, None]] = {}
        self.configs: dict[Resource, None] = {}
        self.brokers: dict[int, None] = {}
        self.controllers = False
        self.features = False
        self.producer_ids = False
        self.quotas = False
        self.access = False

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__slots__)

    def partition(self, topic_id: bytes, index: int) -> None:
        self.partitions.setdefault(topic_id, {})[index] = None

    def topic_deleted(self, topic: Topic) -> None:
        self.new_topics.discard(topic.id)
        self.partitions.pop(topic.id, None)
        self.deleted_topics[topic.id] = topic


def difference(before: ClusterImage, after: ClusterImage) -> ImageDelta:
    """The delta between two images, for when a snapshot takes the place of the records in between."""
    delta = ImageDelta()
    for topic_id, topic in before.topics_by_id.items():
        if topic_id not in after.topics_by_id:
            delta.topic_deleted(topic)
    for topic_id, topic in after.topics_by_id.items():
        old = before.topics_by_id.get(topic_id)
        if old is None:
            delta.new_topics.add(topic_id)
        for index, partition in enumerate(topic.partitions):
            if old is None or old.partition(index) != partition:
                delta.partition(topic_id, index)
    for resource in {**before.configs, **after.configs}:
        if before.configs.get(resource) != after.configs.get(resource):
            delta.configs[resource] = None
    for broker_id in {**before.brokers, **after.brokers}:
        if before.brokers.get(broker_id) != after.brokers.get(broker_id):
            delta.brokers[broker_id] = None
    delta.controllers = before.controllers != after.controllers
    delta.features = before.finalized_features != after.finalized_features
    delta.producer_ids = before.next_producer_id != after.next_producer_id
    delta.quotas = before.quotas != after.quotas
    delta.access = any(getattr(before, name) != getattr(after, name) for name in ("acls", "scram", "delegation_tokens"))
    return delta
