"""What a run of metadata records changed, so that a broker looks only at that instead of at the whole image."""

from __future__ import annotations

from pylogd.metadata.registrations import Topic

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
