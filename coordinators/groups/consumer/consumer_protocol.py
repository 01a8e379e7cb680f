"""ConsumerGroupHeartbeat: a member joins, stays, changes its mind, takes its next step, or leaves.

Every check comes before the first record: what an event has written cannot be taken back. Records are replayed as they
are written, so each step below sees the group as the step before left it.

Timers, by name: ("session", group, member) when a member is not heard of, ("rebalance", group, member) when it does not
give up what it must, ("assign", group) when the next assignment may be made, ("regex", group) to match patterns with
topics, ("rejoin" and "resync", group, member) for members of the classic protocol.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pylogd.config.values import Values
from pylogd.coordinators.groups.consumer.assigning import Assigning
from pylogd.coordinators.groups.consumer.consumer_group import ConsumerGroup
from pylogd.coordinators.groups.consumer.group_replay import replay
from pylogd.coordinators.groups.consumer.group_settings import HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS, Settings
from pylogd.coordinators.groups.consumer.heartbeat_checks import check_epoch, check_request
from pylogd.coordinators.groups.consumer.member import (
    JOINING,
    LEAVING,
    LEAVING_STATIC,
    Member,
    MemberState,
    topic_names,
)
from pylogd.coordinators.groups.consumer.patterns import Patterns
from pylogd.coordinators.groups.consumer.reconcile import Reported, check_known_state, reconcile, reported
from pylogd.coordinators.groups.consumer.regex import compile_regex
from pylogd.coordinators.groups.consumer.subscribed_topics import TopicHashes, subscribed_ids
from pylogd.coordinators.groups.group import CLASSIC, CONSUMER
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages import group_records as records
from pylogd.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from pylogd.coordinators.groups.classic.classic_protocol import Caller
    from pylogd.coordinators.groups.classic.rebalancing import Rebalancing
    from pylogd.coordinators.groups.consumer.migration.upgrade import Migration
    from pylogd.coordinators.shard.effects import Effects
    from pylogd.metadata.delta import ImageDelta
    from pylogd.metadata.image import ClusterImage
    from pylogd.metadata.latest import LatestImage

logger = logging.getLogger(__name__)


class ConsumerProtocol:
    """`groups` is shared with the other protocols, `new_id()` makes a member id."""

    classes: Mapping[int, Any] = {
        3: (records.ConsumerGroupMetadataKey, records.ConsumerGroupMetadataValue),
        4: (records.ConsumerGroupPartitionMetadataKey, records.ConsumerGroupPartitionMetadataValue),
        5: (records.ConsumerGroupMemberMetadataKey, records.ConsumerGroupMemberMetadataValue),
        6: (records.ConsumerGroupTargetAssignmentMetadataKey, records.ConsumerGroupTargetAssignmentMetadataValue),
        7: (records.ConsumerGroupTargetAssignmentMemberKey, records.ConsumerGroupTargetAssignmentMemberValue),
        8: (records.ConsumerGroupCurrentMemberAssignmentKey, records.ConsumerGroupCurrentMemberAssignmentValue),
        16: (records.ConsumerGroupRegularExpressionKey, records.ConsumerGroupRegularExpressionValue),
    }

    def __init__(
        self,
        groups: dict[str, Any],
        rebalancing: Rebalancing,
        config: Values,
        metadata: LatestImage,
        new_id: Callable[[], str],
    ) -> None:
        self.groups = groups
        self.rebalancing = rebalancing
        self.config = config
        self.metadata = metadata
        self.new_id = new_id
        self.settings = Settings(config, metadata)
        self.hashes = TopicHashes()
        self.assignment = Assigning(self)
        self.patterns = Patterns(self)

    @property
    def migration(self) -> Migration:
        from pylogd.coordinators.groups.consumer.migration.upgrade import Migration

        return Migration(self)

    # -- life of the shard

    def replay(self, key: Any, value: Any) -> None:
        replay(self.groups, key, value)

    def loaded(self, effects: Effects, group: ConsumerGroup) -> None:
        """Members get a whole session to show that they are alive."""
        self.patterns.new_topics_at = max(self.patterns.new_topics_at, self.metadata.image.offset)
        for member in tuple(group.members.values()):
            self.expect_heartbeat(effects, group.group_id, member)
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                self._expect_revocation(effects, group, member)

    def metadata_changed(self, effects: Effects, delta: ImageDelta, image: ClusterImage) -> None:
        """Groups that subscribe to what changed look at it with their next heartbeat."""
        if delta.new_topics:
            self.patterns.new_topics_at = image.offset
        changed = [topic.name for topic in delta.deleted_topics.values()]
        for topic_id in delta.partitions:
            topic = image.topics_by_id.get(topic_id)
            if topic is not None:
                changed.append(topic.name)
        for name in changed:
            self.hashes.forget(name)
        for group in self.groups.values():
            if group.kind == CONSUMER and any(name in group.subscribed for name in changed):
                group.refresh_at_ms = 0

    # -- heartbeat

    def heartbeat(self, effects: Effects, reply: Any, request: Any, caller: Caller) -> None:
        check_request(request, caller.version, self.assignment.offered)
        if request.member_epoch in (LEAVING, LEAVING_STATIC):
            effects.answer(reply, self._leave(effects, request))
            return
        joining = request.member_epoch == JOINING
        group_id = request.group_id
        group, become = self._find_or_create(group_id, joining)
        self.check_size(group, request.member_id)
        member_id = request.member_id or self.new_id()
        owned = reported(request.topic_partitions)
        if request.instance_id is None:
            member, replaced = self._dynamic_member(group, member_id, request.member_epoch, owned), None
        else:
            member, replaced = self._static_member(group, member_id, request, owned)
        updated = member._replace(
            instance_id=member.instance_id if request.instance_id is None else request.instance_id,
            rack_id=member.rack_id if request.rack_id is None else request.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms
            if request.rebalance_timeout_ms != -1
            else member.rebalance_timeout_ms,
            assignor=member.assignor if request.server_assignor is None else request.server_assignor,
            topics=member.topics
            if request.subscribed_topic_names is None
            else topic_names(request.subscribed_topic_names),
            regex=member.regex if request.subscribed_topic_regex is None else request.subscribed_topic_regex,
            client_id=caller.client_id,
            client_host=caller.host,
            classic=None,
        )
        if updated.regex and updated.regex != member.regex and updated.regex not in group.regexes:
            compile_regex(updated.regex)
        check_known_state(updated, owned)

        if joining:
            effects.check_writable()
        else:
            # It was heard of, even if what it brings cannot be written now.
            self.expect_heartbeat(effects, group_id, updated)
        become(effects)
        updated = self.take_step(effects, group_id, member, updated, replaced, owned)
        if joining:
            self.expect_heartbeat(effects, group_id, updated)
        # All of it in answer to all of it, otherwise only when it changed.
        told_all = (
            request.rebalance_timeout_ms != -1
            and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
            and request.topic_partitions is not None
        )
        response = ConsumerGroupHeartbeatResponse(
            member_id=updated.member_id,
            member_epoch=updated.member_epoch,
            heartbeat_interval_ms=self.settings.of_group(group_id, HEARTBEAT_INTERVAL_MS),
        )
        if joining or told_all or updated.assigned != member.assigned:
            response.assignment = Assignment(
                [TopicPartitions(topic_id, sorted(indexes)) for topic_id, indexes in updated.assigned.items()]
            )
        effects.answer(reply, response)

    def find(self, group_id: str) -> ConsumerGroup:
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if group.kind != CONSUMER:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        found: ConsumerGroup = group
        return found

    def _find_or_create(self, group_id: str, create: bool) -> tuple[ConsumerGroup, Callable[[Effects], None]]:
        """The group, and what has to be written to make it so."""
        group = self.groups.get(group_id)
        if group is None:
            if not create:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
            return ConsumerGroup(group_id), lambda effects: None
        if group.kind == CLASSIC and create:
            if group.is_empty:
                return ConsumerGroup(group_id), group.write_tombstones
            return self.migration.upgrade(group)
        return self.find(group_id), lambda effects: None

    def check_size(self, group: ConsumerGroup, member_id: str) -> None:
        size_max: int = self.config["group.consumer.max.size"]
        if len(group.members) >= size_max and member_id not in group.members:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {size_max} members.",
            )

    # -- who is it?

    def _dynamic_member(self, group: ConsumerGroup, member_id: str, epoch: int, owned: Reported) -> Member:
        if epoch == JOINING and member_id not in group.members:
            return Member(member_id)
        member = group.member(member_id)
        check_epoch(member, epoch, owned)
        return member

    def _static_member(
        self, group: ConsumerGroup, member_id: str, request: Any, owned: Reported
    ) -> tuple[Member, Member | None]:
        """The member, and the one whose place it takes."""
        existing = group.static_member(request.instance_id)
        if request.member_epoch != JOINING:
            member = self.check_static(existing, member_id, request.instance_id)
            check_epoch(member, request.member_epoch, owned)
            return member, None
        if existing is None:
            return group.members.get(member_id) or Member(member_id), None
        if existing.classic is None and existing.member_epoch != LEAVING_STATIC:
            raise KafkaError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {request.instance_id} cannot join the group because the "
                f"instance id is owned by {existing.member_id} member.",
            )
        return taking_place(existing, member_id), existing

    def check_static(self, member: Member | None, member_id: str, instance_id: str) -> Member:
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if member.member_id != member_id:
            raise KafkaError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
            )
        return member

    # -- what has changed?

    def take_step(
        self,
        effects: Effects,
        group_id: str,
        member: Member,
        updated: Member,
        replaced: Member | None,
        owned: Reported,
    ) -> Member:
        """Write what is new about a member, bring the group up to date, and move the member on."""
        subscription_changed = self.update_member(effects, group_id, member, updated, replaced)
        group = self.groups[group_id]
        self.assignment.update(effects, group)
        return self.reconcile(effects, group, updated, subscription_changed, owned)

    def update_member(
        self,
        effects: Effects,
        group_id: str,
        member: Member,
        updated: Member,
        replaced: Member | None,
        *,
        always_bump: bool = False,
    ) -> bool:
        """Did its subscription change? A pattern that is new to the group changes nothing until it is resolved, unless
        `always_bump`."""
        group = self.groups.get(group_id)
        if group is not None and replaced is not None:
            self._replace(effects, group, replaced, member)
        known = group is not None and updated.member_id in group.members
        regex_changed = updated.regex != member.regex
        dropped = group is not None and regex_changed and member.regex and group.regexes.get(member.regex) == 1
        resolved = regex_changed and (
            (group is not None and updated.regex in group.regexes and updated.regex in group.resolved)
            if updated.regex
            else bool(member.regex)
        )
        introduced = bool(updated.regex) and regex_changed and (group is None or updated.regex not in group.regexes)
        if updated != member or not known:
            effects.write(*updated.subscription_record(group_id))
        if dropped:
            effects.write(records.ConsumerGroupRegularExpressionKey(group_id, member.regex or ""), None)
        group = self.groups[group_id]
        self.patterns.refresh(effects, group, introduced)
        topics_changed = updated.topics != member.topics
        bump = topics_changed or resolved or (always_bump and regex_changed)
        if bump or group.refresh_is_due(effects.now_ms):
            self._update_metadata(effects, group, bump)
        return topics_changed or regex_changed

    def _replace(self, effects: Effects, group: ConsumerGroup, old: Member, new: Member) -> None:
        """A static member comes back under a new id and takes everything over."""
        target = group.target.get(old.member_id, {})
        group.cancel_timers(effects, old.member_id)
        self._remove(effects, group.group_id, old.member_id)
        effects.write(*new.subscription_record(group.group_id))
        self.assignment.write(effects, group.group_id, new.member_id, target)
        effects.write(*new.assignment_record(group.group_id))

    def _update_metadata(self, effects: Effects, group: ConsumerGroup, bump: bool) -> None:
        hash_ = self.hashes.of_group(self.metadata.image, group.subscribed)
        if bump or hash_ != group.metadata_hash:
            self.bump(effects, group, hash_)
        group.refreshed(effects.now_ms)
        if group.has_partition_metadata:
            effects.write(records.ConsumerGroupPartitionMetadataKey(group.group_id), None)

    def bump(self, effects: Effects, group: ConsumerGroup, hash_: int) -> None:
        epoch = group.epoch + 1
        effects.write(
            records.ConsumerGroupMetadataKey(group.group_id),
            records.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=hash_),
        )
        logger.info("group %s is in epoch %d with %d members", group.group_id, epoch, len(group.members))

    # -- reconciliation

    def reconcile(
        self, effects: Effects, group: ConsumerGroup, member: Member, subscription_changed: bool, owned: Reported
    ) -> Member:
        epoch = group.assignment_epoch
        if not subscription_changed and member.is_reconciled_to(epoch):
            return member
        target = group.target.get(member.member_id, {})
        subscribed = subscribed_ids(self.metadata.image, group.topics_of(member))
        updated = reconcile(member, epoch, target, subscribed, subscription_changed, group.has_owner, owned)
        if updated != member:
            # Timers first: a member that gave up what it had to is not fenced because nobody can write that down now.
            if updated.classic is None:
                if updated.state is MemberState.UNREVOKED_PARTITIONS:
                    self._expect_revocation(effects, group, updated)
                else:
                    effects.cancel(("rebalance", group.group_id, updated.member_id))
            effects.write(*updated.assignment_record(group.group_id))
        return updated

    # -- leaving

    def _leave(self, effects: Effects, request: Any) -> ConsumerGroupHeartbeatResponse:
        effects.check_writable()
        group = self.find(request.group_id)
        if request.instance_id is None:
            member = group.member(request.member_id)
        else:
            static = group.static_member(request.instance_id)
            member = self.check_static(static, request.member_id, request.instance_id)
            if request.member_epoch == LEAVING_STATIC:
                since_ever = {topic_id: dict.fromkeys(indexes, 0) for topic_id, indexes in member.assigned.items()}
                away = member._replace(member_epoch=LEAVING_STATIC, revoking={}, assigned=since_ever)
                effects.write(*away.assignment_record(group.group_id))
                return ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=LEAVING_STATIC)
        logger.info("member %s leaves group %s", member.member_id, group.group_id)
        self.fence(effects, group, [member])
        return ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)

    def fence(self, effects: Effects, group: ConsumerGroup, members: Iterable[Member]) -> None:
        """Members are no longer part of the group."""
        gone = {member.member_id: member for member in members}
        if not gone:
            return
        if self.migration.downgrade_without(effects, group, gone):
            return
        leaving: dict[str, int] = {}
        for member in gone.values():
            if member.regex:
                leaving[member.regex] = leaving.get(member.regex, 0) + 1
        orphaned = [regex for regex, count in leaving.items() if group.regexes.get(regex) == count]
        for member_id in gone:
            self._remove(effects, group.group_id, member_id)
        for regex in orphaned:
            effects.write(records.ConsumerGroupRegularExpressionKey(group.group_id, regex), None)
        self.bump(effects, group, self.hashes.of_group(self.metadata.image, group.subscribed))
        for member_id in gone:
            group.cancel_timers(effects, member_id)
        if group.members and group.classic_count == len(group.members):
            # Nobody is left whose heartbeat would assign what has become free.
            self.assignment.update(effects, group)

    def _remove(self, effects: Effects, group_id: str, member_id: str) -> None:
        effects.write(records.ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id), None)
        effects.write(records.ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), None)
        effects.write(records.ConsumerGroupMemberMetadataKey(group_id, member_id), None)

    # -- time-outs

    def expect_heartbeat(self, effects: Effects, group_id: str, member: Member) -> None:
        """A member of the classic protocol has a session time-out of its own."""
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        else:
            timeout_ms = self.settings.of_group(group_id, SESSION_TIMEOUT_MS)
        self.fence_after(effects, "session", group_id, member.member_id, timeout_ms, "its session ended")

    def fence_after(
        self, effects: Effects, what: str, group_id: str, member_id: str, delay_ms: int, reason: str
    ) -> None:
        event = lambda later: self._fence_late(later, group_id, member_id, reason)  # noqa: E731
        effects.after((what, group_id, member_id), delay_ms, event)

    def _fence_late(self, effects: Effects, group_id: str, member_id: str, reason: str) -> None:
        group = self.groups.get(group_id)
        if group is not None and group.kind == CONSUMER and member_id in group.members:
            logger.info("member %s of group %s is fenced: %s", member_id, group_id, reason)
            self.fence(effects, group, [group.members[member_id]])

    def _expect_revocation(self, effects: Effects, group: ConsumerGroup, member: Member) -> None:
        group_id, member_id, epoch = group.group_id, member.member_id, member.member_epoch

        def expired(later: Effects) -> None:
            now = self.groups.get(group_id)
            if now is None or now.kind != CONSUMER or member_id not in now.members:
                return
            if now.members[member_id].member_epoch == epoch:
                reason = f"it did not leave epoch {epoch} in {member.rebalance_timeout_ms} ms"
                self._fence_late(later, group_id, member_id, reason)

        effects.after(("rebalance", group_id, member_id), member.rebalance_timeout_ms, expired)


def taking_place(existing: Member, member_id: str) -> Member:
    """A static member's new self starts over with all that the old one had."""
    return existing._replace(member_id=member_id, member_epoch=0, previous_epoch=0)
