"""A classic group becomes a consumer group while it runs (group.consumer.migration.policy).

A member that joins a classic group with the new protocol turns it into a consumer group: its members keep their
partitions and go on with JoinGroup, SyncGroup and Heartbeat (`classic_members`) until they too are replaced.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from pylogd.coordinators.groups.classic.classic_group import ClassicGroup
from pylogd.coordinators.groups.classic.classic_group import Member as ClassicMember
from pylogd.coordinators.groups.consumer.consumer_group import CONSUMER_PROTOCOL_TYPE, ConsumerGroup
from pylogd.coordinators.groups.consumer.member import ClassicMetadata, Member, topic_names
from pylogd.coordinators.groups.consumer.migration.embedded import (
    decode_assignment,
    decode_subscription,
)
from pylogd.protocol.errors import ErrorCode, KafkaError, ProtocolError
from pylogd.protocol.messages import group_records as records
from pylogd.protocol.messages.join_group import JoinGroupResponse
from pylogd.protocol.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from pylogd.coordinators.groups.consumer.assigning import Assigning
    from pylogd.coordinators.groups.consumer.consumer_groups import ConsumerGroups
    from pylogd.coordinators.groups.consumer.fencing import Fencing
    from pylogd.coordinators.shard.effects import Effects

logger = logging.getLogger(__name__)


class Upgrade:
    def __init__(self, groups: ConsumerGroups, assignment: Assigning, fencing: Fencing) -> None:
        self._groups = groups
        self._assignment = assignment
        self._fencing = fencing

    def upgraded(self, group: ClassicGroup) -> tuple[ConsumerGroup, Callable[[Effects], None]]:
        """The group as it will be, and what makes it so; KafkaError when it cannot be done."""
        group_id = group.group_id
        if self._groups.config["group.consumer.migration.policy"].lower() not in ("bidirectional", "upgrade"):
            raise _refused(group_id, "online upgrade is disabled")
        if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise _refused(group_id, "the group does not use the consumer embedded protocol")
        if len(group.members) > self._groups.config["group.consumer.max.size"]:
            raise _refused(group_id, "the group size exceeds the consumer group maximum size")
        upgraded = ConsumerGroup(group_id)
        try:
            for member in group.members.values():
                upgraded.update(self._member(group, member))
        except ProtocolError:
            raise _refused(group_id, "the embedded consumer protocol is malformed") from None
        upgraded.epoch = upgraded.assignment_epoch = group.generation
        return upgraded, lambda effects: self._write(effects, group, upgraded)

    def _member(self, group: ClassicGroup, member: ClassicMember) -> Member:
        """It is stable with what it has. If it was in the middle of a rebalance it is told to join again."""
        metadata = next((data for name, data in member.protocols if name == group.protocol), member.protocols[0][1])
        subscription = decode_subscription(metadata)
        owned: dict[bytes, dict[int, int]] = {}
        if member.assignment:
            assignment = decode_assignment(member.assignment)
            if assignment.user_data:
                raise _refused(
                    group.group_id,
                    "an unsupported custom assignor is in use. Please refer to the documentation or switch to a "
                    "default assignor before re-attempting the upgrade",
                )
            topics = self._groups.image.topics
            for each in assignment.assigned_partitions:
                if each.topic in topics:
                    owned[topics[each.topic].id] = dict.fromkeys(each.partitions, group.generation)
        return Member(
            member.member_id,
            member_epoch=group.generation,
            previous_epoch=group.generation,
            instance_id=member.instance_id,
            rack_id=subscription.rack_id or None,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            client_id=member.client_id,
            client_host=member.client_host,
            topics=topic_names(subscription.topics),
            assigned=owned,
            classic=ClassicMetadata(member.session_timeout_ms, tuple(member.protocols)),
        )

    def _write(self, effects: Effects, group: ClassicGroup, upgraded: ConsumerGroup) -> None:
        group_id = group.group_id
        code = ErrorCode.REBALANCE_IN_PROGRESS
        for member_id, parked in group.awaiting_join.items():
            effects.answer(parked, JoinGroupResponse(error_code=code, member_id=member_id))
        for parked in group.awaiting_sync.values():
            effects.answer(parked, SyncGroupResponse(error_code=code))
        effects.cancel(("join", group_id))
        effects.cancel(("sync", group_id))
        group.write_tombstones(effects)
        members = tuple(upgraded.members.values())
        for member in members:
            effects.write(*member.subscription_record(group_id))
        hash_ = self._groups.hash_of(upgraded)
        effects.write(
            records.ConsumerGroupMetadataKey(group_id),
            records.ConsumerGroupMetadataValue(epoch=upgraded.epoch, metadata_hash=hash_),
        )
        for member in members:
            target = {topic_id: set(indexes) for topic_id, indexes in member.assigned.items()}
            self._assignment.write(effects, group_id, member.member_id, target)
        effects.write(
            records.ConsumerGroupTargetAssignmentMetadataKey(group_id),
            records.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=upgraded.epoch),
        )
        for member in members:
            effects.write(*member.assignment_record(group_id))
            self._fencing.expect_heartbeat(effects, group_id, member)
        logger.info("group %s moves from the classic to the consumer protocol", group_id)


def _refused(group_id: str, why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND, f"Cannot upgrade classic group {group_id} to consumer group because {why}."
    )
