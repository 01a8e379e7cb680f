"""The uniform assignor for members that subscribe to different topics.

First everybody keeps what it has of topics it still subscribes to, then free partitions go to the least loaded
subscribers of their topic, topics with the most partitions per subscriber first. Then topics are balanced one by one,
moving partitions from the most to the least loaded of their subscribers, round and round until a whole round moves
nothing. With overlapping subscriptions that converges quickly but not always to the very best; the rounds are limited.
"""

from __future__ import annotations

from pylogd.coordinators.groups.consumer.assignors.assignor import GroupAssignment, GroupSpec, copied
from pylogd.coordinators.groups.consumer.assignors.java_order import member_order, uuid_rank

ROUNDS_MAX = 16
_NOBODY = -1


class MixedAssignment:
    """Members are numbers here: their place in `ids`."""

    def __init__(self, group: GroupSpec) -> None:
        self.partitions = group.partitions
        self.ids = member_order(group.members)
        self.subscribers: dict[bytes, list[int]] = {}
        for number, member_id in enumerate(self.ids):
            for topic_id in group.members[member_id].topics:
                self.subscribers.setdefault(topic_id, []).append(number)
        self.owners = {topic_id: [_NOBODY] * group.partitions[topic_id] for topic_id in self.subscribers}
        #: how many partitions each member has
        self.load = [0] * len(self.ids)
        self.result: list[dict[bytes, set[int]]] = []
        for number, member_id in enumerate(self.ids):
            member = group.members[member_id]
            mine = set(member.topics)
            kept = {topic_id: parts for topic_id, parts in copied(member.assignment).items() if topic_id in mine}
            self.result.append(kept)
            for topic_id, partitions in kept.items():
                self.load[number] += len(partitions)
                owners = self.owners[topic_id]
                for partition in partitions:
                    owners[partition] = number

    def assign(self) -> GroupAssignment:
        if not self.subscribers:
            return {}
        for topic_id in self._sorted([topic_id for topic_id, owners in self.owners.items() if _NOBODY in owners]):
            balancer = Balancer(self.load, self.subscribers[topic_id])
            for partition, owner in enumerate(self.owners[topic_id]):
                if owner == _NOBODY:
                    self._give(topic_id, partition, balancer.next_least())
        self._balance(self._sorted([topic_id for topic_id, members in self.subscribers.items() if len(members) >= 2]))
        return dict(zip(self.ids, self.result, strict=True))

    def _sorted(self, topic_ids: list[bytes]) -> list[bytes]:
        def rank(topic_id: bytes) -> tuple[float, int, tuple[int, int]]:
            count = len(self.subscribers[topic_id])
            return -(self.partitions[topic_id] / count), count, uuid_rank(topic_id)

        return sorted(topic_ids, key=rank)

    def _give(self, topic_id: bytes, partition: int, to: int) -> None:
        owner = self.owners[topic_id][partition]
        if owner != _NOBODY:
            held = self.result[owner][topic_id]
            held.discard(partition)
            if not held:
                del self.result[owner][topic_id]
            self.load[owner] -= 1
        self.result[to].setdefault(topic_id, set()).add(partition)
        self.owners[topic_id][partition] = to
        self.load[to] += 1

    def _balance(self, topic_ids: list[bytes]) -> None:
        last_moved = -1
        for _ in range(ROUNDS_MAX):
            for place, topic_id in enumerate(topic_ids):
                if place == last_moved:
                    return  # once around, and nothing has moved since
                if self._balance_topic(topic_id) or last_moved == -1:
                    last_moved = place

    def _balance_topic(self, topic_id: bytes) -> int:
        """Move partitions of one topic; how many were moved."""
        balancer = Balancer(self.load, self.subscribers[topic_id])
        if balancer.imbalance <= 1:
            return 0
        owners = self.owners[topic_id]
        #: member -> its partitions at the start, the one to give up next last
        stock: dict[int, list[int]] = {}
        for partition, owner in enumerate(owners):
            stock.setdefault(owner, []).append(partition)
        moved = 0
        while not balancer.is_balanced:
            giver = balancer.next_most()
            while giver != _NOBODY and not stock.get(giver):
                balancer.exclude_most()
                giver = balancer.next_most()
            if giver == _NOBODY:
                break
            partition = stock[giver].pop()
            taker = balancer.next_least()
            if balancer.is_balanced:
                break
            self._give(topic_id, partition, taker)
            moved += 1
        return moved


class Balancer:
    """Subscribers of one topic sorted by load, with a range of the least loaded growing from the left and one of the
    most loaded growing from the right. Each call to `next_least` or `next_most` supposes that the member returned gets
    or gives up a partition, so a range is walked once before its level changes."""

    def __init__(self, load: list[int], members: list[int]) -> None:
        self.load = load
        self.members = sorted(members, key=lambda member: (load[member], member))
        self.imbalance = load[self.members[-1]] - load[self.members[0]]
        self._least_end = 0
        self._least_level = load[self.members[0]] - 1
        self._next_least = 0
        self._most_start = self._most_end = len(self.members)
        self._most_level = load[self.members[-1]] + 1
        self._next_most = len(self.members) - 1

    @property
    def is_balanced(self) -> bool:
        return self._most_level - self._least_level <= 1

    def next_least(self) -> int:
        members, load = self.members, self.load
        if self._next_least >= self._least_end:
            self._least_level += 1
            while self._least_end < len(members) and load[members[self._least_end]] == self._least_level:
                self._least_end += 1
            self._next_least = 0
        member = members[self._next_least]
        self._next_least += 1
        return member

    def next_most(self) -> int:
        """-1 when nobody is left who can give."""
        members, load = self.members, self.load
        if self._next_most < self._most_start:
            if self._most_end <= self._most_start and self._most_start > 0:
                # All of the range were excluded: it starts anew at the level of the next member.
                self._most_level = load[members[self._most_start - 1]]
            else:
                self._most_level -= 1
            while self._most_start > 0 and load[members[self._most_start - 1]] == self._most_level:
                self._most_start -= 1
            self._next_most = self._most_end - 1
        if self._next_most < 0:
            return _NOBODY
        member = members[self._next_most]
        self._next_most -= 1
        return member

    def exclude_most(self) -> None:
        """The member last returned by `next_most` has nothing of this topic to give."""
        place, end = self._next_most + 1, self._most_end - 1
        self.members[place], self.members[end] = self.members[end], self.members[place]
        self._most_end -= 1
