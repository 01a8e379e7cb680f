"""The uniform assignor: the same number of partitions for everybody, give or take one, moving as few as possible.

When all members subscribe to the same topics a quota decides; when they do not, see `uniform_mixed`.
"""

from __future__ import annotations

from pylogd.coordinators.groups.consumer.assignors.assignor import GroupAssignment, GroupSpec, MemberSpec, copied
from pylogd.coordinators.groups.consumer.assignors.java_order import (
    grown_capacity,
    hash_order,
    member_order,
    partition_order,
    sized_capacity,
    uuid_hash,
)


def assign_uniform(group: GroupSpec) -> GroupAssignment:
    if not group.members:
        return {}
    if group.same:
        return _assign_same(group)
    from pylogd.coordinators.groups.consumer.assignors.uniform_mixed import MixedAssignment

    return MixedAssignment(group).assign()


def _assign_same(group: GroupSpec) -> GroupAssignment:
    members = member_order(group.members)
    first = group.members[members[0]]
    if not first.topics:
        return {}
    topics = hash_order(first.topics, uuid_hash, sized_capacity(max(first.wide, len(first.topics))))
    subscribed = set(topics)
    held = {
        (topic_id, partition)
        for spec in group.members.values()
        for topic_id, partitions in spec.assignment.items()
        for partition in partitions
    }
    free = [
        (topic_id, partition)
        for topic_id in topics
        for partition in range(group.partitions[topic_id])
        if (topic_id, partition) not in held
    ]
    total = sum(group.partitions[topic_id] for topic_id in topics)
    quota, extras = divmod(total, len(members))
    result: GroupAssignment = {}
    hungry: list[tuple[str, int]] = []
    for number, member_id in enumerate(members):
        room = quota + (1 if extras else 0)
        kept, room = _keep(group.members[member_id], subscribed, room, free)
        result[member_id] = kept
        takes_extra = extras > 0
        if room > 0 and takes_extra and len(members) - number > extras:
            # Somebody later may hold one more already: leave the extra partition to them, unless only those are left
            # who must take one.
            room -= 1
            takes_extra = False
        if room > 0:
            hungry.append((member_id, room))
        if takes_extra:
            extras -= 1
    place = 0
    for member_id, room in hungry:
        assignment = result[member_id]
        for topic_id, partition in free[place : place + room]:
            assignment.setdefault(topic_id, set()).add(partition)
        place += room
    return result


def _keep(
    member: MemberSpec, subscribed: set[bytes], room: int, free: list[tuple[bytes, int]]
) -> tuple[dict[bytes, set[int]], int]:
    """What a member keeps within its quota, and how much room is left; the rest becomes free."""
    kept = copied(member.assignment)
    for topic_id in hash_order(member.assignment, uuid_hash, grown_capacity(len(member.assignment))):
        partitions = member.assignment[topic_id]
        if topic_id not in subscribed:
            del kept[topic_id]
        elif len(partitions) <= room:
            room -= len(partitions)
        else:
            for partition in partition_order(partitions):
                if room > 0:
                    room -= 1
                else:
                    kept[topic_id].discard(partition)
                    free.append((topic_id, partition))
            if not kept[topic_id]:
                del kept[topic_id]
    return kept, room
