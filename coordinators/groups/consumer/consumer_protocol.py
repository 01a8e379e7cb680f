"""ConsumerGroupHeartbeat: a member joins, stays, changes its mind, takes its next step, or leaves.

Every check comes before the first record: what an event has written cannot be taken back. What a member may do is
checked here, what it does is written by `member_steps`, and `fencing` sees to those who do nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from pylogd.config.values import Values
from pylogd.coordinators.groups.classic.classic_group import ClassicGroup
from pylogd.coordinators.groups.consumer.assigning import Assigning
from pylogd.coordinators.groups.consumer.consumer_group import ConsumerGroup
from pylogd.coordinators.groups.consumer.consumer_groups import ConsumerGroups
from pylogd.coordinators.groups.consumer.fencing import Fencing
from pylogd.coordinators.groups.consumer.group_settings import HEARTBEAT_INTERVAL_MS
from pylogd.coordinators.groups.consumer.heartbeat_checks import check_epoch, check_request
from pylogd.coordinators.groups.consumer.member import (
    JOINING,
    LEAVING,
    LEAVING_STATIC,
    Member,
    MemberState,
    topic_names,
)
from pylogd.coordinators.groups.consumer.member_steps import MemberSteps
from pylogd.coordinators.groups.consumer.migration.downgrade import Downgrade
from pylogd.coordinators.groups.consumer.migration.upgrade import Upgrade
from pylogd.coordinators.groups.consumer.patterns import Patterns
from pylogd.coordinators.groups.consumer.reconcile import Reported, check_known_state, reported
from pylogd.coordinators.groups.consumer.regex import compile_regex
from pylogd.coordinators.groups.group import Group
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from pylogd.coordinators.groups.classic.rebalancing import Rebalancing
    from pylogd.coordinators.groups.group import Caller
    from pylogd.coordinators.shard.effects import Effects, Reply
    from pylogd.metadata.delta import ImageDelta
    from pylogd.metadata.image import ClusterImage
    from pylogd.metadata.latest import LatestImage

logger = logging.getLogger(__name__)


class ConsumerProtocol:
    """`groups` is shared with the other protocols, `new_id()` makes a member id."""

    def __init__(
        self,
        groups: dict[str, Group],
        rebalancing: Rebalancing,
        config: Values,
        metadata: LatestImage,
        new_id: Callable[[], str],
    ) -> None:
        self.groups = ConsumerGroups(groups, config, metadata)
        self.new_id = new_id
        self.assignment = Assigning(self.groups)
        self.downgrade = Downgrade(self.groups, rebalancing)
        self.fencing = Fencing(self.groups, self.assignment, self.downgrade)
        self._patterns = Patterns(self.groups)
        self.steps = MemberSteps(self.groups, self.assignment, self._patterns, self.fencing)
        self._upgrade = Upgrade(self.groups, self.assignment, self.fencing)

    # -- life of the shard

    def loaded(self, effects: Effects, group: ConsumerGroup) -> None:
        """Members get a whole session to show that they are alive."""
        self._patterns.new_topics_at = max(self._patterns.new_topics_at, self.groups.image.offset)
        for member in tuple(group.members.values()):
            self.fencing.expect_heartbeat(effects, group.group_id, member)
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                self.fencing.expect_revocation(effects, group, member)

    def metadata_changed(self, effects: Effects, delta: ImageDelta, image: ClusterImage) -> None:
        """Groups that subscribe to what changed look at it with their next heartbeat."""
        if delta.new_topics:
            self._patterns.new_topics_at = image.offset
        changed = [topic.name for topic in delta.deleted_topics.values()]
        for topic_id in delta.partitions:
            topic = image.topics_by_id.get(topic_id)
            if topic is not None:
                changed.append(topic.name)
        for name in changed:
            self.groups.hashes.forget(name)
        for group in self.groups.groups.values():
            if isinstance(group, ConsumerGroup) and any(name in group.subscribed for name in changed):
                group.refresh_at_ms = 0

    # -- heartbeat

    def heartbeat(self, effects: Effects, reply: Reply, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> None:
        check_request(request, caller.version, self.assignment.offered)
        if request.member_epoch in (LEAVING, LEAVING_STATIC):
            effects.answer(reply, self._leave(effects, request))
            return
        joining = request.member_epoch == JOINING
        group_id = request.group_id
        group, become, unsettled = self._find_or_create(group_id, joining)
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
            self.fencing.expect_heartbeat(effects, group_id, updated)
        become(effects)
        updated = self.steps.take_step(effects, group_id, member, updated, replaced, owned, unsettled=unsettled)
        if joining:
            self.fencing.expect_heartbeat(effects, group_id, updated)
        # All of it in answer to all of it, otherwise only when it changed.
        told_all = (
            request.rebalance_timeout_ms != -1
            and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
            and request.topic_partitions is not None
        )
        response = ConsumerGroupHeartbeatResponse(
            member_id=updated.member_id,
            member_epoch=updated.member_epoch,
            heartbeat_interval_ms=self.groups.settings.of_group(group_id, HEARTBEAT_INTERVAL_MS),
        )
        if joining or told_all or updated.assigned != member.assigned:
            response.assignment = Assignment(
                [TopicPartitions(topic_id, sorted(indexes)) for topic_id, indexes in updated.assigned.items()]
            )
        effects.answer(reply, response)

    def _find_or_create(self, group_id: str, create: bool) -> tuple[ConsumerGroup, Callable[[Effects], None], bool]:
        """The group, what has to be written to make it so, and whether its classic members were about to share the
        partitions anew, and still wait for that."""
        group = self.groups.groups.get(group_id)
        if group is None:
            if not create:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
            return ConsumerGroup(group_id), lambda effects: None, False
        if isinstance(group, ClassicGroup) and create:
            if group.is_empty:
                return ConsumerGroup(group_id), group.write_tombstones, False
            return *self._upgrade.upgraded(group), group.is_rebalancing
        return self.groups.find(group_id), lambda effects: None, False

    def check_size(self, group: ConsumerGroup, member_id: str) -> None:
        size_max: int = self.groups.config["group.consumer.max.size"]
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
        self, group: ConsumerGroup, member_id: str, request: ConsumerGroupHeartbeatRequest, owned: Reported
    ) -> tuple[Member, Member | None]:
        """The member, and the one whose place it takes."""
        assert request.instance_id is not None
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

    # -- leaving

    def _leave(self, effects: Effects, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        effects.check_writable()
        group = self.groups.find(request.group_id)
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
        self.fencing.fence(effects, group, [member])
        return ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)


def taking_place(existing: Member, member_id: str) -> Member:
    """A static member's new self starts over with all that the old one had."""
    return existing._replace(member_id=member_id, member_epoch=0, previous_epoch=0)
