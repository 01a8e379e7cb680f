"""The range assignor: each topic is cut into ranges of partitions, one per subscribed member in turn.

Members go by instance id, then those without one by member id, so members that all subscribe to the same topics of the
same size get the same partition numbers of each. Nothing is sticky but the order.
"""

from __future__ import annotations

from pylogd.coordinators.groups.consumer.assignors.assignor import GroupAssignment, GroupSpec


def assign_range(group: GroupSpec) -> GroupAssignment:
    members = sorted(group.members, key=lambda member_id: _rank(group, member_id))
    subscribers: dict[bytes, int] = {}
    for spec in group.members.values():
        for topic_id in spec.topics:
            subscribers[topic_id] = subscribers.get(topic_id, 0) + 1
    #: topic -> next partition, members that still get one more than the others
    place = {topic_id: (0, group.partitions[topic_id] % count) for topic_id, count in subscribers.items()}
    result: GroupAssignment = {}
    for member_id in members:
        assignment = result[member_id] = {}
        for topic_id in group.members[member_id].topics:
            start, extra = place[topic_id]
            end = start + group.partitions[topic_id] // subscribers[topic_id] + (1 if extra else 0)
            place[topic_id] = end, max(extra - 1, 0)
            if start < end:
                assignment[topic_id] = set(range(start, end))
    return result


def _rank(group: GroupSpec, member_id: str) -> tuple[bool, str]:
    instance_id = group.members[member_id].instance_id
    return (True, member_id) if instance_id is None else (False, instance_id)
