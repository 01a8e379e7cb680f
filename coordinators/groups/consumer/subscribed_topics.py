"""What a group needs to know of the topics it subscribes to: their ids, and a hash that changes when they do.

The hash of a group is kept in its ConsumerGroupMetadata record, so it is Kafka's to the bit: XXH3 over the hashes of
the subscribed topics that exist, in the order of their names. Of a topic: a magic byte, its id, name, partition count,
and for each partition its number and the racks of its replicas, sorted. Numbers are little-endian; a string is its
UTF-16 code units and then their count; before a rack stands its length.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pylogd.metadata.image import ClusterImage
    from pylogd.metadata.registrations import Topic

_MAGIC = b"\0"
_INT32 = Struct("<i").pack
_INT64 = Struct("<q").pack


def subscribed_ids(image: ClusterImage, names: Iterable[str]) -> tuple[bytes, ...]:
    """Ids of those topics that exist."""
    topics = image.topics
    return tuple(topics[name].id for name in names if name in topics)


class TopicHashes:
    """Hashes of topics, kept until the topic changes."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def forget(self, name: str) -> None:
        self._known.pop(name, None)

    def of_group(self, image: ClusterImage, names: Iterable[str]) -> int:
        from xxhash import xxh3_64_intdigest

        hashes = bytearray()
        for name in sorted(names):
            topic = image.topics.get(name)
            if topic is None:
                continue
            value = self._known.get(name)
            if value is None:
                value = self._known[name] = topic_hash(image, topic)
            hashes += _INT64(value)
        return _signed(xxh3_64_intdigest(bytes(hashes))) if hashes else 0


def topic_hash(image: ClusterImage, topic: Topic) -> int:
    from xxhash import xxh3_64_intdigest

    data = bytearray(_MAGIC)
    data += topic.id[7::-1] + topic.id[:7:-1]
    data += _string(topic.name)
    data += _INT32(len(topic.partitions))
    for index, partition in enumerate(topic.partitions):
        data += _INT32(index)
        brokers = (image.brokers.get(broker_id) for broker_id in partition.replicas)
        racks = [broker.rack for broker in brokers if broker is not None and broker.rack is not None]
        for rack in sorted(racks, key=lambda rack: rack.encode("utf-16-be", "surrogatepass")):
            data += _INT32(_length(rack)) + _string(rack)
    return _signed(xxh3_64_intdigest(bytes(data)))


def _string(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass") + _INT32(_length(text))


def _length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
