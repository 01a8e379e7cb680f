"""What a disk holds in memory, and what of it survives a crash: what a disk guarantees, and no more.

- Bytes of a file up to its last fsync. Of what was written since, some first part, the last write perhaps torn in the
  middle, or only the new length with zeros where the bytes should be.
- Names up to the last sync of their directory. Of later creations, renames and removals some first part, in order, as a
  journal keeps them. A synced file whose name was never synced is gone.
Chance decides which of the possible worlds comes back.
"""

from __future__ import annotations

import random
from collections.abc import Iterable


class Node:
    """The bytes of a file, and what happened to them since they were last durable."""

    __slots__ = ("changes", "data", "durable", "modified_ms")

    def __init__(self, now_ms: int) -> None:
        self.data = bytearray()
        self.durable = b""
        self.changes: list[tuple[int, bytes] | int] = []
        self.modified_ms = now_ms

    def survive(self, chance: random.Random) -> Node:
        node = Node(self.modified_ms)
        data = bytearray(self.durable)
        keep = chance.choice((0, len(self.changes), chance.randint(0, len(self.changes))))
        for change in self.changes[:keep]:
            change_bytes(data, change)
        if keep < len(self.changes):
            lost = self.changes[keep]
            if not isinstance(lost, int):
                position, written = lost
                kind = chance.choice(("lost", "torn", "zeros"))
                if kind == "torn":
                    change_bytes(data, (position, written[: chance.randint(0, len(written))]))
                elif kind == "zeros":
                    change_bytes(data, (position, bytes(len(written))))
        node.data = data
        node.durable = bytes(data)
        return node


class Directory:
    """Names, and how they changed since the directory was last synced: each entry is (name, what it names or None)s."""

    __slots__ = ("durable", "journal", "names")

    def __init__(self) -> None:
        self.names: dict[str, Node | Directory] = {}
        self.durable: dict[str, Node | Directory] = {}
        self.journal: list[list[tuple[str, Node | Directory | None]]] = []

    def change(self, *entries: tuple[str, Node | Directory | None]) -> None:
        self.journal.append(list(entries))
        _change_names(self.names, entries)

    def sync(self) -> None:
        self.durable = dict(self.names)
        self.journal.clear()

    def survive(self, chance: random.Random, seen: dict[int, Node | Directory]) -> Directory:
        names = dict(self.durable)
        for entries in self.journal[: chance.choice((0, len(self.journal), chance.randint(0, len(self.journal))))]:
            _change_names(names, entries)
        survivor = Directory()
        for name, node in names.items():
            if id(node) not in seen:
                seen[id(node)] = node.survive(chance, seen) if isinstance(node, Directory) else node.survive(chance)
            survivor.names[name] = seen[id(node)]
        survivor.durable = dict(survivor.names)
        return survivor


def change_bytes(data: bytearray, change: tuple[int, bytes] | int) -> None:
    if isinstance(change, int):
        if change <= len(data):
            del data[change:]
        else:
            data.extend(bytes(change - len(data)))
        return
    position, written = change
    if position > len(data):
        data.extend(bytes(position - len(data)))
    data[position : position + len(written)] = written


def _change_names(names: dict[str, Node | Directory], entries: Iterable[tuple[str, Node | Directory | None]]) -> None:
    for name, node in entries:
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node
