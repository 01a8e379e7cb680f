"""Which partition of an internal topic a key belongs to: by Java's String.hashCode, as every Kafka broker and tool
computes it."""

from __future__ import annotations


def java_hash(text: str) -> int:
    """String.hashCode: over UTF-16 code units, wrapping at 32 bits, signed."""
    value = 0
    if text.isascii():
        for unit in text.encode():
            value = (31 * value + unit) & 0xFFFFFFFF
    else:
        data = text.encode("utf-16-be", "surrogatepass")
        for place in range(0, len(data), 2):
            value = (31 * value + (data[place] << 8 | data[place + 1])) & 0xFFFFFFFF
    return value - 0x100000000 if value & 0x80000000 else value


def partition_for(key: str, partitions: int) -> int:
    value = java_hash(key)
    return (0 if value == -0x80000000 else abs(value)) % partitions


def hash_map_order(keys: list[str]) -> list[str]:
    """Keys in the order Java's HashMap walks them (up to its first resize): where Kafka breaks a tie by it, so do
    we."""

    def bucket(key: str) -> int:
        value = java_hash(key) & 0xFFFFFFFF
        return (value ^ value >> 16) & 15

    return sorted(keys, key=bucket)
