"""One digest for the batches between each two cuts, fed in the order of their offsets."""

from __future__ import annotations

from bisect import bisect_right

import xxhash


class Digester:
    """`add` is called for every batch; most need one comparison and one update. 128 bits: what agrees is equal."""

    __slots__ = ("_cuts", "_hash", "_start", "digests", "until")

    def __init__(self, cuts: list[int]) -> None:
        self._cuts = cuts
        self.digests: dict[int, bytes] = {}
        self._hash = xxhash.xxh3_128()
        self._start = -1
        #: A batch from this offset on belongs to the next block.
        self.until = cuts[0] if cuts else 1 << 63

    def next_block(self, base_offset: int) -> None:
        self.finish()
        slot = bisect_right(self._cuts, base_offset)
        if slot == len(self._cuts):
            self._start, self.until = -1, 1 << 63
        else:
            self._start, self.until = self._cuts[slot - 1], self._cuts[slot]

    def add(self, batch: memoryview) -> None:
        if self._start >= 0:
            self._hash.update(batch)

    def finish(self) -> None:
        if self._start >= 0:
            self.digests[self._start] = self._hash.digest()
            self._hash.reset()
