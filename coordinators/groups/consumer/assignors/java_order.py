"""The order in which Java's HashMap and HashSet are walked.

Where an assignor has a choice, Kafka's follows the order of a hash table. Following the same order gives the same
assignment, so that a coordinator moving between a pylogd broker and a JVM one moves no partition.

A table has a power of two of buckets, an entry lies in the bucket of its hash (upper half folded into the lower), and
within a bucket in the order of insertion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import Struct
from typing import TypeVar

from pylogd.coordinators.shard.key_placement import java_hash

T = TypeVar("T")

_SMALLEST = 16
_UUID = Struct(">IIII").unpack


def uuid_hash(topic_id: bytes) -> int:
    """Uuid.hashCode: all four words folded together."""
    a, b, c, d = _UUID(topic_id)
    return int(a ^ b ^ c ^ d)


def uuid_rank(topic_id: bytes) -> tuple[int, int]:
    """Sorts as Uuid.compareTo: by two signed halves."""
    high, low = int.from_bytes(topic_id[:8], signed=True), int.from_bytes(topic_id[8:], signed=True)
    return high, low


def grown_capacity(size: int) -> int:
    """Buckets of a table that grew one entry at a time: it doubles when it is more than three quarters full."""
    capacity = _SMALLEST
    while size > capacity * 3 // 4:
        capacity *= 2
    return capacity


def sized_capacity(size: int) -> int:
    """Buckets of a HashSet made from a collection of this size."""
    wanted = max(int(size / 0.75) + 1, _SMALLEST)
    return 1 << (wanted - 1).bit_length()


def hash_order(items: Iterable[T], hash_of: Callable[[T], int], capacity: int) -> list[T]:
    mask = capacity - 1

    def bucket(item: T) -> int:
        value = hash_of(item) & 0xFFFFFFFF
        return (value ^ value >> 16) & mask

    return sorted(items, key=bucket)


def member_order(member_ids: Iterable[str]) -> list[str]:
    ids = list(member_ids)
    return hash_order(ids, java_hash, grown_capacity(len(ids)))


def name_order(names: Iterable[str]) -> list[str]:
    """As a HashSet of topic names."""
    known = list(names)
    return hash_order(known, java_hash, sized_capacity(len(known)))


def partition_order(partitions: Iterable[int]) -> list[int]:
    """As a HashSet made from a sorted list."""
    indexes = sorted(partitions)
    mask = sized_capacity(len(indexes)) - 1
    return indexes if not indexes or indexes[-1] <= mask else sorted(indexes, key=lambda index: index & mask)
