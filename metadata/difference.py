"""The delta between two images, for when a snapshot takes the place of the records in between."""

from __future__ import annotations

from pylogd.metadata.delta import ImageDelta
from pylogd.metadata.image import ClusterImage


def difference(before: ClusterImage, after: ClusterImage) -> ImageDelta:
    """What became of `before` to make it `after`; the flags as replay of the records in between would set them."""
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
    delta.access = before.access != after.access
    return delta
