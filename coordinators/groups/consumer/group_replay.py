"""From the records of consumer groups to their state: the only place that changes it."""

from __future__ import annotations

from typing import Any

from pylogd.coordinators.groups.consumer.consumer_group import ConsumerGroup, ResolvedRegex
from pylogd.coordinators.groups.consumer.member import Member
from pylogd.coordinators.groups.group import CONSUMER
from pylogd.protocol.messages import group_records as records


def replay(groups: dict[str, Any], key: Any, value: Any) -> None:
    """Take in a record of a consumer group, whichever it is."""
    group_id = key.group_id
    group = groups.get(group_id)
    if group is None or group.kind != CONSUMER:
        if value is None:
            return
        # A simple group that only held offsets has no record of its own: it becomes what the record says.
        group = groups[group_id] = ConsumerGroup(group_id)
    kind = key.API_KEY
    if kind == records.ConsumerGroupMetadataKey.API_KEY:
        if value is None:
            del groups[group_id]
        else:
            group.epoch = value.epoch
            group.metadata_hash = value.metadata_hash
    elif kind == records.ConsumerGroupPartitionMetadataKey.API_KEY:
        group.has_partition_metadata = value is not None
    elif kind == records.ConsumerGroupMemberMetadataKey.API_KEY:
        if value is None:
            group.remove(key.member_id)
        else:
            group.update(_member(group, key.member_id).with_subscription(value))
    elif kind == records.ConsumerGroupTargetAssignmentMetadataKey.API_KEY:
        group.assignment_epoch = -1 if value is None else value.assignment_epoch
        group.assignment_timestamp_ms = 0 if value is None else value.assignment_timestamp
    elif kind == records.ConsumerGroupTargetAssignmentMemberKey.API_KEY:
        if value is None:
            group.target.pop(key.member_id, None)
        else:
            topics = value.topic_partitions
            group.target[key.member_id] = {bytes(topic.topic_id): frozenset(topic.partitions) for topic in topics}
    elif kind == records.ConsumerGroupCurrentMemberAssignmentKey.API_KEY:
        if value is not None:
            group.update(_member(group, key.member_id).with_assignment(value))
        elif key.member_id in group.members:
            group.update(group.members[key.member_id].without_assignment())
    elif kind == records.ConsumerGroupRegularExpressionKey.API_KEY:
        resolved = None if value is None else ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
        group.resolve(key.regular_expression, resolved)


def _member(group: ConsumerGroup, member_id: str) -> Member:
    return group.members.get(member_id) or Member(member_id)
