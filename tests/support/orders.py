"""Generated data for pipelines with a known answer: orders with what can go wrong in them, and customers with
tombstones. Everything follows from the number of a record."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from support.clients import Message

PARTITIONS = 2
BEGIN = datetime(2026, 3, 1, 10, 0, tzinfo=UTC)
#: However many there are, they span this; the windows of the aggregation are of a minute.
SPAN = timedelta(minutes=40)
DAY = timedelta(days=1)
ITEMS = ["bolt", "cog", "gear", "nut", "pin"]
SCHEMA = "id BIGINT NOT NULL, customer STRING, item INT, amount BIGINT, at TIMESTAMP"


def partition_of(key: bytes) -> int:
    return zlib.crc32(key) % PARTITIONS


class Orders:
    """Every 1,000th order is no JSON, every other 1,000th has no id, and in the second half some are a day late."""

    def __init__(self, count: int) -> None:
        self.count = count

    def is_bad(self, n: int) -> bool:
        return n % 1000 in (998, 999)

    def is_late(self, n: int) -> bool:
        return n % 1000 == 500 and n > self.count // 2

    def at(self, n: int) -> datetime:
        moment = BEGIN + SPAN * (n / self.count)
        return (moment - DAY if self.is_late(n) else moment).replace(microsecond=0)

    def key(self, n: int) -> bytes:
        return b"c%d" % (n * 7919 % 997)

    def row(self, n: int) -> dict[str, object]:
        stamp = self.at(n).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {"id": n, "customer": self.key(n).decode(), "item": n % 7, "amount": n * 37 % 1000, "at": stamp}

    def value(self, n: int) -> bytes:
        row = self.row(n)
        if n % 1000 == 998:
            del row["id"]
        return b"order %d" % n if n % 1000 == 999 else json.dumps(row).encode()

    def messages(self, start: int = 0) -> Iterator[Message]:
        for n in range(start, self.count):
            key = self.key(n)
            yield Message(self.value(n), key, timestamp=self.stamp(n), partition=partition_of(key))

    def stamp(self, n: int) -> int:
        """The timestamp of the record, in the order they are sent. It is long ago: retention would take them."""
        return int(BEGIN.timestamp() * 1000) + n * 10

    def by_partition(self) -> list[list[int]]:
        """The numbers in each partition, at the offset of their index."""
        found: list[list[int]] = [[] for _ in range(PARTITIONS)]
        for n in range(self.count):
            found[partition_of(self.key(n))].append(n)
        return found

    def good(self) -> list[int]:
        return [n for n in range(self.count) if not self.is_bad(n) and not self.is_late(n)]

    def totals(self, delay: timedelta) -> dict[tuple[datetime, int], tuple[int, int]]:
        """(minute, item) to the number and amount of its orders, for all minutes that the watermark has closed."""
        closed = max(self.at(n) for n in self.good()) - delay
        counts: Counter[tuple[datetime, int]] = Counter()
        amounts: Counter[tuple[datetime, int]] = Counter()
        for n in self.good():
            minute = self.at(n).replace(second=0)
            if minute + timedelta(minutes=1) <= closed:
                counts[minute, n % 7] += 1
                amounts[minute, n % 7] += n * 37 % 1000
        return {place: (counts[place], amounts[place]) for place in counts}


class Customers:
    """Each customer is written many times, and each 11th record is a tombstone."""

    def __init__(self, count: int, customers: int = 3000) -> None:
        self.count = count
        self.customers = customers

    def key(self, n: int) -> bytes:
        return b"c%d" % (n * 31 % self.customers)

    def value(self, n: int) -> bytes | None:
        return None if n % 11 == 0 else b'{"visits": %d}' % n

    def messages(self, start: int = 0) -> Iterator[Message]:
        for n in range(start, self.count):
            yield Message(self.value(n), self.key(n), partition=partition_of(self.key(n)))

    def latest(self) -> dict[str, int]:
        """The visits of each customer that is left."""
        last = {self.key(n): n for n in range(self.count)}
        return {key.decode(): n for key, n in last.items() if self.value(n) is not None}
