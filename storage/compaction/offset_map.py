"""From key to latest offset, for the whole dirty part of a log, in a fixed amount of memory.

An open-addressing table over one byte array: 24 bytes per slot, the 16-byte hash of the key and its offset plus one
(zero is an empty slot). Keys themselves are not kept: two keys with the same 128-bit hash would be taken for one. The
array is allocated untouched, so a small log costs small memory whatever the limit.
"""

from __future__ import annotations

from hashlib import md5
from struct import Struct

SLOT_BYTES = 24

_SLOT = Struct(">16sq")
_OFFSET = Struct(">q")
# Probing: first the windows of four bytes within the hash, then slot after slot.
_HASH_WINDOWS = 12


class OffsetMap:
    """`latest_offset` is the last offset the map speaks for: records behind it must be kept whatever their key."""

    __slots__ = ("_slots", "_table", "entries", "latest_offset")

    def __init__(self, memory_bytes: int) -> None:
        self._slots = max(1, memory_bytes // SLOT_BYTES)
        self._table = bytearray(self._slots * SLOT_BYTES)
        self.entries = 0
        self.latest_offset = -1

    @property
    def slots(self) -> int:
        return self._slots

    def put(self, key: bytes, offset: int) -> None:
        """A later put of a key replaces an earlier one; the caller watches `entries` against `slots`."""
        digest = md5(key, usedforsecurity=False).digest()
        position, stored = self._find(digest)
        if stored == 0:
            if self.entries >= self._slots - 1:
                raise ValueError(f"the offset map of {self._slots} slots is full")
            self.entries += 1
            _SLOT.pack_into(self._table, position, digest, offset + 1)
        else:
            _OFFSET.pack_into(self._table, position + 16, offset + 1)
        self.latest_offset = offset

    def get(self, key: bytes) -> int:
        """The offset put last for `key`, or -1."""
        return self._find(md5(key, usedforsecurity=False).digest())[1] - 1

    def _find(self, digest: bytes) -> tuple[int, int]:
        """(position of the slot that holds the hash or is free for it, its value). One slot always stays free."""
        table, slots = self._table, self._slots
        unpack = _SLOT.unpack_from
        for window in range(_HASH_WINDOWS):
            position = int.from_bytes(digest[window : window + 4], "big") % slots * SLOT_BYTES
            known, stored = unpack(table, position)
            if stored == 0 or known == digest:
                return position, stored
        slot = int.from_bytes(digest[_HASH_WINDOWS:], "big") % slots
        while True:
            known, stored = unpack(table, slot * SLOT_BYTES)
            if stored == 0 or known == digest:
                return slot * SLOT_BYTES, stored
            slot = (slot + 1) % slots
