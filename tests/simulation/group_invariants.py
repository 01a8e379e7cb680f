"""What a coordinator may never break, as the members of a group were told it and as its log says it.

A member is told things by whoever it takes for the coordinator, also by one that was deposed and does not know it yet.
That one can acknowledge nothing that has to be written, but it may repeat what was true. So what a member learns in a
generation (in the new protocol, an epoch) is measured by what was acknowledged in the same generation and those before
it; and that nothing ever goes back is read from the log.
"""

from __future__ import annotations

from typing import Any

from pylogd.coordinators.groups.consumer.migration.embedded import decode_assignment
from pylogd.coordinators.groups.groups import GroupState
from pylogd.coordinators.shard.record_pairs import decode_record
from pylogd.protocol import batch as batches
from pylogd.protocol.control import ControlType, control_type

from simulation.broker_invariants import Violation

_CLASSIC, _EPOCH, _CURRENT = 2, 3, 8
_LEFT_STATIC = -2


class Book:
    """What the members of one group were told. `kinds`: the protocols they speak."""

    def __init__(self, name: str, kinds: tuple[str, ...]) -> None:
        self.name = name
        self.kinds = kinds
        #: A group that changes its kind when it is empty begins to count anew: nothing follows from its numbers.
        self._counts = len(kinds) == 1
        self._owners: dict[tuple[int, int], str] = {}
        #: partition -> generation -> the furthest commit acknowledged in it
        self._acknowledged: dict[int, dict[int, int]] = {}
        self.commits: list[tuple[int, int]] = []
        #: partition -> offset -> value
        self.delivered: dict[int, dict[int, bytes]] = {}
        self.joins = 0
        #: What somebody finds who only looks.
        self.looked_up: dict[int, int] = {}

    def owns(self, who: str, generation: int, partitions: list[int]) -> None:
        for index in partitions:
            owner = self._owners.setdefault((generation, index), who) if self._counts else who
            if owner != who:
                raise Violation(
                    f"group {self.name}: {owner} and {who} were both given partition {index} in {generation}"
                )

    def acknowledged(self, generation: int, index: int, offset: int) -> None:
        self.commits.append((index, offset))
        furthest = self._acknowledged.setdefault(index, {})
        furthest[generation] = max(furthest.get(generation, -1), offset)

    def floor(self, generation: int, index: int) -> int:
        """What an owner in this generation must find at least; ask before asking the broker."""
        known = self._acknowledged.get(index, {})
        return max((offset for told, offset in known.items() if told <= generation), default=-1) if self._counts else -1

    def found(self, index: int, offset: int, floor: int) -> None:
        if offset < floor:
            raise Violation(f"group {self.name}: partition {index} is at {offset}, {floor} had been acknowledged")

    def deliver(self, index: int, records: list[tuple[int, bool, bytes]]) -> None:
        delivered = self.delivered.setdefault(index, {})
        for offset, _, value in records:
            delivered[offset] = value


class GroupLog:
    """The records of `__consumer_offsets`, in order: nobody ever shares a partition, and no number goes back."""

    def __init__(self) -> None:
        self._last: dict[Any, int] = {}
        #: group -> member -> partitions
        self._owned: dict[str, dict[str, set[int]]] = {}
        #: (group, partition) -> every offset that was committed, and the last one
        self.committed: dict[tuple[str, int], list[int]] = {}
        self._pending: dict[int, list[tuple[tuple[str, int], int]]] = {}

    def read(self, data: bytes) -> None:
        for position, header in batches.iter_headers(data):
            records = list(batches.batch_records(data, header, position))
            if header.is_control:
                if header.is_transactional:
                    pending = self._pending.pop(header.producer_id, [])
                    if control_type(records[0].key) is ControlType.COMMIT:
                        for place, offset in pending:
                            self.committed.setdefault(place, []).append(offset)
                continue
            for record in records:
                found = decode_record(GroupState.classes, record.key, record.value)
                assert found is not None
                self._take(found.key, found.value, header.producer_id if header.is_transactional else -1)

    def _take(self, key: Any, value: Any, producer_id: int) -> None:
        kind = key.API_KEY
        if kind == 1:
            place = (key.group, key.partition)
            if producer_id >= 0:
                self._pending.setdefault(producer_id, []).append((place, value.offset))
            else:
                self.committed.setdefault(place, []).append(value.offset)
        elif kind == _CLASSIC:
            self._forward((kind, key.group), None if value is None else value.generation)
            # The record is the whole group, as it was when it was last stable.
            self._owned.pop(key.group, None)
            for member in () if value is None else value.members:
                given = decode_assignment(bytes(member.assignment)).assigned_partitions if member.assignment else []
                self._own(key.group, member.member_id, {index for topic in given for index in topic.partitions})
        elif kind == _EPOCH:
            self._forward((kind, key.group_id), None if value is None else value.epoch)
        elif kind == _CURRENT:
            epoch = None if value is None else value.member_epoch
            self._forward((kind, key.group_id, key.member_id), None if epoch == _LEFT_STATIC else epoch)
            rows = () if value is None else (*value.assigned_partitions, *value.partitions_pending_revocation)
            self._own(key.group_id, key.member_id, {index for row in rows for index in row.partitions})

    def _forward(self, what: Any, number: int | None) -> None:
        """Not back, unless it was deleted in between."""
        if number is None:
            self._last.pop(what, None)
        elif number < self._last.get(what, -1):
            raise Violation(f"{what} goes back from {self._last[what]} to {number}")
        else:
            self._last[what] = number

    def _own(self, group: str, member: str, where: set[int]) -> None:
        owned = self._owned.setdefault(group, {})
        owned.pop(member, None)
        for other, theirs in owned.items():
            if theirs & where:
                raise Violation(f"group {group}: {member} is given {sorted(where)} while {other} has {sorted(theirs)}")
        if where:
            owned[member] = where

    def check(self, book: Book) -> None:
        for index, offset in book.commits:
            if offset not in self.committed.get((book.name, index), ()):
                raise Violation(f"group {book.name}: {offset} was acknowledged for partition {index} and is not there")
        if len(book.kinds) > 1:
            return
        for (group, index), offsets in self.committed.items():
            if group == book.name and offsets != sorted(offsets):
                raise Violation(f"group {group}: what is committed for partition {index} goes back: {offsets}")
