"""Groups that move from the classic to the consumer protocol and back while they run (group.consumer.migration.policy).

A member that joins a classic group with the new protocol turns it into a consumer group: its members keep their
partitions and go on with JoinGroup, SyncGroup and Heartbeat (`classic_members`) until they too are replaced. When the
last member of the new protocol leaves, the group becomes a classic one again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pylogd.coordinators.groups.classic.classic_group import ClassicGroup
from pylogd.coordinators.groups.classic.classic_group import Member as ClassicMember
from pylogd.coordinators.groups.consumer.consumer_group import CONSUMER_PROTOCOL_TYPE, ConsumerGroup
from pylogd.coordinators.groups.consumer.member import ClassicMetadata, Member, topic_names
from pylogd.coordinators.groups.consumer.migration.embedded import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    subscription_version,
)
from pylogd.protocol.errors import ErrorCode, KafkaError, ProtocolError
from pylogd.protocol.messages import group_records as records
from pylogd.protocol.messages.join_group import JoinGroupResponse
from pylogd.protocol.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from pylogd.coordinators.groups.consumer.consumer_protocol import ConsumerProtocol
    from pylogd.coordinators.shard.effects import Effects

logger = logging.getLogger(__name__)


class Migration:
    def __init__(self, protocol: ConsumerProtocol) -> None:
        self._protocol = protocol
        self._config = protocol.config
        self._policy: str = protocol.config["group.consumer.migration.policy"].lower()

    # -- classic to consumer

    def upgrade(self, group: ClassicGroup) -> tuple[ConsumerGroup, Callable[[Effects], None]]:
        """The group as it will be, and what makes it so; KafkaError when it cannot be done."""
        group_id = group.group_id
        if self._policy not in ("bidirectional", "upgrade"):
            raise _refused(group_id, "online upgrade is disabled")
        if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise _refused(group_id, "the group does not use the consumer embedded protocol")
        if len(group.members) > self._config["group.consumer.max.size"]:
            raise _refused(group_id, "the group size exceeds the consumer group maximum size")
        upgraded = ConsumerGroup(group_id)
        try:
            for member in group.members.values():
                upgraded.update(self._upgraded(group, member))
        except ProtocolError:
            raise _refused(group_id, "the embedded consumer protocol is malformed") from None
        upgraded.epoch = upgraded.assignment_epoch = group.generation
        return upgraded, lambda effects: self._write_upgrade(effects, group, upgraded)

    def _upgraded(self, group: ClassicGroup, member: ClassicMember) -> Member:
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
            topics = self._protocol.metadata.image.topics
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

    def _write_upgrade(self, effects: Effects, group: ClassicGroup, upgraded: ConsumerGroup) -> None:
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
        hash_ = self._protocol.hashes.of_group(self._protocol.metadata.image, upgraded.subscribed)
        effects.write(
            records.ConsumerGroupMetadataKey(group_id),
            records.ConsumerGroupMetadataValue(epoch=upgraded.epoch, metadata_hash=hash_),
        )
        for member in members:
            target = {topic_id: set(indexes) for topic_id, indexes in member.assigned.items()}
            self._protocol.assignment.write(effects, group_id, member.member_id, target)
        effects.write(
            records.ConsumerGroupTargetAssignmentMetadataKey(group_id),
            records.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=upgraded.epoch),
        )
        for member in members:
            effects.write(*member.assignment_record(group_id))
            self._protocol.expect_heartbeat(effects, group_id, member)
        logger.info("group %s moves from the classic to the consumer protocol", group_id)

    # -- consumer to classic

    def _may_downgrade(self, group: ConsumerGroup, size: int) -> bool:
        if self._policy not in ("bidirectional", "downgrade"):
            logger.info("group %s stays a consumer group: online downgrade is disabled", group.group_id)
            return False
        if size > self._config["group.max.size"]:
            logger.info("group %s stays a consumer group: it is too large for a classic one", group.group_id)
            return False
        return True

    def downgrade_without(self, effects: Effects, group: ConsumerGroup, gone: Mapping[str, Member]) -> bool:
        """Is everybody left a classic member when these are gone? Then the group becomes classic, without them."""
        left = [member for member in group.members.values() if member.member_id not in gone]
        if not left or any(member.classic is None for member in left) or not self._may_downgrade(group, len(left)):
            return False
        self._write_downgrade(effects, group, left)
        self._rebalance(effects, group.group_id, "members of the consumer protocol have left")
        return True

    def would_downgrade(self, group: ConsumerGroup, replaced: Member | None) -> bool:
        """Is this static member the last one of the new protocol?"""
        return (
            replaced is not None
            and replaced.classic is None
            and group.classic_count == len(group.members) - 1
            and self._may_downgrade(group, len(group.members))
        )

    def downgrade(self, effects: Effects, group: ConsumerGroup, rebalance: bool) -> None:
        self._write_downgrade(effects, group, list(group.members.values()))
        if rebalance:
            self._rebalance(effects, group.group_id, "the assignment of the consumer group was stale")

    def _rebalance(self, effects: Effects, group_id: str, reason: str) -> None:
        rebalancing = self._protocol.rebalancing
        group = rebalancing.find(group_id)
        if group is not None and group.can_rebalance:
            rebalancing.prepare(effects, group, reason)

    def _write_downgrade(self, effects: Effects, group: ConsumerGroup, members: list[Member]) -> None:
        group_id = group.group_id
        classic = ClassicGroup(group_id, effects.now_ms)
        classic.protocol_type = CONSUMER_PROTOCOL_TYPE
        classic.generation = group.epoch
        for member in members:
            assert member.classic is not None
            classic.insert(
                ClassicMember(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.rebalance_timeout_ms,
                    member.classic.session_timeout_ms,
                    list(member.classic.protocols),
                )
            )
        classic.protocol = classic.select_protocol()
        topics = self._protocol.metadata.image.topics_by_id
        assignments = {}
        for each in classic.members.values():
            version = subscription_version(each.metadata(classic.protocol))
            target = group.target.get(each.member_id, {})
            named = {topics[topic_id].name: sorted(parts) for topic_id, parts in target.items() if topic_id in topics}
            assignments[each.member_id] = encode_assignment(named, version)
        group.write_tombstones(effects)
        # The record knows only the chosen protocol of each member; the group remembers the others.
        self._protocol.groups[group_id] = classic
        effects.write(*classic.record(assignments))
        self._protocol.rebalancing.loaded(effects, classic)
        logger.info("group %s moves from the consumer to the classic protocol", group_id)


def _refused(group_id: str, why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND, f"Cannot upgrade classic group {group_id} to consumer group because {why}."
    )
