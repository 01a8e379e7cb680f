"""From the records of consumer groups to their state: the only place that changes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pylogd.coordinators.groups.consumer.consumer_group import ConsumerGroup, ResolvedRegex
from pylogd.coordinators.groups.consumer.member import Member
from pylogd.coordinators.groups.group import Group
from pylogd.coordinators.shard.record_pairs import RecordClasses
from pylogd.protocol.messages import group_records as records

ConsumerKey = (
    records.ConsumerGroupMetadataKey
    | records.ConsumerGroupPartitionMetadataKey
    | records.ConsumerGroupMemberMetadataKey
    | records.ConsumerGroupTargetAssignmentMetadataKey
    | records.ConsumerGroupTargetAssignmentMemberKey
    | records.ConsumerGroupCurrentMemberAssignmentKey
    | records.ConsumerGroupRegularExpressionKey
)

#: By the type that opens a key.
CONSUMER_RECORDS: RecordClasses = {
    3: (records.ConsumerGroupMetadataKey, records.ConsumerGroupMetadataValue),
    4: (records.ConsumerGroupPartitionMetadataKey, records.ConsumerGroupPartitionMetadataValue),
    5: (records.ConsumerGroupMemberMetadataKey, records.ConsumerGroupMemberMetadataValue),
    6: (records.ConsumerGroupTargetAssignmentMetadataKey, records.ConsumerGroupTargetAssignmentMetadataValue),
    7: (records.ConsumerGroupTargetAssignmentMemberKey, records.ConsumerGroupTargetAssignmentMemberValue),
    8: (records.ConsumerGroupCurrentMemberAssignmentKey, records.ConsumerGroupCurrentMemberAssignmentValue),
    16: (records.ConsumerGroupRegularExpressionKey, records.ConsumerGroupRegularExpressionValue),
}


def replay_consumer(groups: dict[str, Group], key: ConsumerKey, value: Any) -> None:
    """Take in a record of a consumer group, whichever it is; `value` is of the class that belongs to the key."""
    group_id = key.group_id
    group = groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        if value is None:
            return
        # A simple group that only held offsets has no record of its own: it becomes what the record says.
        group = groups[group_id] = ConsumerGroup(group_id)
    if value is None and isinstance(key, records.ConsumerGroupMetadataKey):
        del groups[group_id]
    else:
        _REPLAYED_BY[type(key)](group, key, value)


def _metadata(
    group: ConsumerGroup, key: records.ConsumerGroupMetadataKey, value: records.ConsumerGroupMetadataValue
) -> None:
    group.epoch = value.epoch
    group.metadata_hash = value.metadata_hash


def _partition_metadata(
    group: ConsumerGroup,
    key: records.ConsumerGroupPartitionMetadataKey,
    value: records.ConsumerGroupPartitionMetadataValue | None,
) -> None:
    group.has_partition_metadata = value is not None


def _member_metadata(
    group: ConsumerGroup,
    key: records.ConsumerGroupMemberMetadataKey,
    value: records.ConsumerGroupMemberMetadataValue | None,
) -> None:
    if value is None:
        group.remove(key.member_id)
    else:
        group.update(_member(group, key.member_id).with_subscription(value))


def _target_metadata(
    group: ConsumerGroup,
    key: records.ConsumerGroupTargetAssignmentMetadataKey,
    value: records.ConsumerGroupTargetAssignmentMetadataValue | None,
) -> None:
    group.assignment_epoch = -1 if value is None else value.assignment_epoch
    group.assignment_timestamp_ms = 0 if value is None else value.assignment_timestamp


def _target(
    group: ConsumerGroup,
    key: records.ConsumerGroupTargetAssignmentMemberKey,
    value: records.ConsumerGroupTargetAssignmentMemberValue | None,
) -> None:
    if value is None:
        group.target.pop(key.member_id, None)
    else:
        topics = value.topic_partitions
        group.target[key.member_id] = {bytes(topic.topic_id): frozenset(topic.partitions) for topic in topics}


def _current(
    group: ConsumerGroup,
    key: records.ConsumerGroupCurrentMemberAssignmentKey,
    value: records.ConsumerGroupCurrentMemberAssignmentValue | None,
) -> None:
    if value is not None:
        group.update(_member(group, key.member_id).with_assignment(value))
    elif key.member_id in group.members:
        group.update(group.members[key.member_id].without_assignment())


def _regular_expression(
    group: ConsumerGroup,
    key: records.ConsumerGroupRegularExpressionKey,
    value: records.ConsumerGroupRegularExpressionValue | None,
) -> None:
    resolved = None if value is None else ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
    group.resolve(key.regular_expression, resolved)


_REPLAYED_BY: dict[type[ConsumerKey], Callable[[ConsumerGroup, Any, Any], None]] = {
    records.ConsumerGroupMetadataKey: _metadata,
    records.ConsumerGroupPartitionMetadataKey: _partition_metadata,
    records.ConsumerGroupMemberMetadataKey: _member_metadata,
    records.ConsumerGroupTargetAssignmentMetadataKey: _target_metadata,
    records.ConsumerGroupTargetAssignmentMemberKey: _target,
    records.ConsumerGroupCurrentMemberAssignmentKey: _current,
    records.ConsumerGroupRegularExpressionKey: _regular_expression,
}


def _member(group: ConsumerGroup, member_id: str) -> Member:
    return group.members.get(member_id) or Member(member_id)
