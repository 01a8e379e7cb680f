"""Members of the classic protocol inside a consumer group.

They have no leader and assign nothing: JoinGroup is a step of reconciliation, with what they own taken from their
metadata, SyncGroup hands out what the step gave, Heartbeat tells them to join again when there is another step to take.
Their member epoch is their generation.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pylogd.coordinators.groups.consumer.consumer_group import CONSUMER_PROTOCOL_TYPE, ConsumerGroup
from pylogd.coordinators.groups.consumer.consumer_protocol import ConsumerProtocol, taking_place
from pylogd.coordinators.groups.consumer.member import ClassicMetadata, Member, MemberState, topic_names
from pylogd.coordinators.groups.consumer.migration.embedded import (
    decode_subscription,
    encode_assignment,
    subscription_version,
)
from pylogd.protocol.errors import ErrorCode, KafkaError, ProtocolError
from pylogd.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from pylogd.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pylogd.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from pylogd.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from pylogd.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from pylogd.coordinators.groups.consumer.reconcile import Reported
    from pylogd.coordinators.groups.group import Caller
    from pylogd.coordinators.shard.effects import Effects, Reply

logger = logging.getLogger(__name__)
_MEMBER_ID_REQUIRED_SINCE = 4


class ClassicMembers:
    def __init__(self, protocol: ConsumerProtocol) -> None:
        self._protocol = protocol
        self._groups = protocol.groups
        self._fencing = protocol.fencing

    # -- JoinGroup

    def join(
        self, effects: Effects, reply: Reply, group: ConsumerGroup, request: JoinGroupRequest, caller: Caller
    ) -> None:
        protocol = self._protocol
        member_id = request.member_id or protocol.new_id()
        self._check_join(group, member_id, request)
        dynamic = request.group_instance_id is None
        if dynamic and not request.member_id and caller.version >= _MEMBER_ID_REQUIRED_SINCE:
            code = ErrorCode.MEMBER_ID_REQUIRED
            effects.answer(reply, JoinGroupResponse(error_code=code, member_id=member_id))
            return
        replaced = None
        if dynamic:
            member = group.members.get(member_id) or Member(member_id)
        else:
            member, replaced = self._static_member(group, member_id, request)
        try:
            subscription = decode_subscription(bytes(request.protocols[0].metadata))
        except ProtocolError:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "malformed consumer protocol subscription") from None
        downgrade = protocol.downgrade.would_follow(group, group.static_member(request.group_instance_id))
        updated = _joined(member, request, caller, subscription)
        if replaced is not None or downgrade:
            effects.check_writable()
        changed = protocol.steps.update_member(effects, group.group_id, member, updated, replaced, always_bump=True)
        owned = self._owned(subscription)
        if downgrade:
            stale = group.assignment_epoch < group.epoch
            if not stale:
                updated = protocol.steps.reconcile(effects, group, updated, changed, owned)
            protocol.downgrade.now(effects, group, stale)
        else:
            protocol.assignment.update(effects, group)
            updated = protocol.steps.reconcile(effects, group, updated, changed, owned)
            self._expect_sync(effects, group, updated)
        effects.answer(
            reply,
            JoinGroupResponse(
                generation_id=updated.member_epoch,
                protocol_type=CONSUMER_PROTOCOL_TYPE,
                protocol_name=request.protocols[0].name,
                member_id=updated.member_id,
            ),
        )

    def _check_join(self, group: ConsumerGroup, member_id: str, request: JoinGroupRequest) -> None:
        if self._groups.config["group.consumer.migration.policy"].lower() == "disabled":
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"Cannot join the consumer group {group.group_id} with the classic protocol because the group "
                "migration is disabled.",
            )
        self._protocol.check_size(group, member_id)
        if not group.supports_classic(request.protocol_type, [each.name for each in request.protocols]):
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Member {member_id}'s protocols are not supported."
            )

    def _expect_sync(self, effects: Effects, group: ConsumerGroup, member: Member) -> None:
        """It has joined: now it is to ask for what it got."""
        group_id, member_id = group.group_id, member.member_id
        self._end_rejoin(effects, group, member_id)
        self._fencing.expect_heartbeat(effects, group_id, member)
        timeout_ms = member.rebalance_timeout_ms
        self._fencing.fence_after(effects, "resync", group_id, member_id, timeout_ms, "it did not sync in time")

    def _static_member(
        self, group: ConsumerGroup, member_id: str, request: JoinGroupRequest
    ) -> tuple[Member, Member | None]:
        assert request.group_instance_id is not None
        existing = group.static_member(request.group_instance_id)
        if request.member_id:
            return self._protocol.check_static(existing, member_id, request.group_instance_id), None
        if existing is None:
            return Member(member_id), None
        return taking_place(existing, member_id), existing

    def _owned(self, subscription: ConsumerProtocolSubscription) -> Reported:
        topics = self._groups.image.topics
        return {
            topics[each.topic].id: list(each.partitions)
            for each in subscription.owned_partitions
            if each.topic in topics
        }

    # -- SyncGroup

    def sync(self, effects: Effects, reply: Reply, group: ConsumerGroup, request: SyncGroupRequest) -> None:
        member, classic = self._member(group, request)
        self._check_generation(member, request)
        name, metadata = classic.protocols[0]
        if (request.protocol_type or CONSUMER_PROTOCOL_TYPE) != CONSUMER_PROTOCOL_TYPE or (
            request.protocol_name is not None and request.protocol_name != name
        ):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.assignment_epoch > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._expect_rejoin(effects, group, member)
            effects.answer(reply, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
            return
        effects.cancel(("resync", group.group_id, member.member_id))
        self._fencing.expect_heartbeat(effects, group.group_id, member)
        topics = self._groups.image.topics_by_id
        named = {
            topics[topic_id].name: sorted(owned) for topic_id, owned in member.assigned.items() if topic_id in topics
        }
        effects.answer(
            reply,
            SyncGroupResponse(
                protocol_type=request.protocol_type,
                protocol_name=request.protocol_name,
                assignment=encode_assignment(named, subscription_version(metadata)),
            ),
        )

    # -- Heartbeat

    def heartbeat(self, effects: Effects, reply: Reply, group: ConsumerGroup, request: HeartbeatRequest) -> None:
        member, _ = self._member(group, request)
        self._check_generation(member, request)
        self._fencing.expect_heartbeat(effects, group.group_id, member)
        waits = member.state is MemberState.UNRELEASED_PARTITIONS
        code = ErrorCode.NONE
        if (
            member.member_epoch < group.assignment_epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (waits and not group.waits_for_release(member))
        ):
            code = ErrorCode.REBALANCE_IN_PROGRESS
            self._expect_rejoin(effects, group, member)
        effects.answer(reply, HeartbeatResponse(error_code=code))

    def _expect_rejoin(self, effects: Effects, group: ConsumerGroup, member: Member) -> None:
        """Its time runs from the first time that it was told."""
        if member.member_id not in group.rejoining:
            group.rejoining[member.member_id] = None
            reason = "it did not join again in time"
            timeout_ms = member.rebalance_timeout_ms
            self._fencing.fence_after(effects, "rejoin", group.group_id, member.member_id, timeout_ms, reason)

    def _end_rejoin(self, effects: Effects, group: ConsumerGroup, member_id: str) -> None:
        group.rejoining.pop(member_id, None)
        effects.cancel(("rejoin", group.group_id, member_id))

    # -- LeaveGroup

    def leave(self, effects: Effects, reply: Reply, group: ConsumerGroup, request: LeaveGroupRequest) -> None:
        gone = []
        answers = []
        for identity in request.members:
            code = ErrorCode.NONE
            try:
                if identity.group_instance_id is None:
                    gone.append(group.member(identity.member_id))
                else:
                    static = group.static_member(identity.group_instance_id)
                    # An administrator removes a static member by its instance id alone.
                    member_id = identity.member_id or (static.member_id if static is not None else "")
                    gone.append(self._protocol.check_static(static, member_id, identity.group_instance_id))
            except KafkaError as refusal:
                code = refusal.code
            answers.append(
                MemberResponse(
                    member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code
                )
            )
        self._fencing.fence(effects, group, gone)
        effects.answer(reply, LeaveGroupResponse(members=answers))

    # -- checks

    def _member(
        self, group: ConsumerGroup, request: SyncGroupRequest | HeartbeatRequest
    ) -> tuple[Member, ClassicMetadata]:
        if request.group_instance_id is None:
            member = group.member(request.member_id)
        else:
            static = group.static_member(request.group_instance_id)
            member = self._protocol.check_static(static, request.member_id, request.group_instance_id)
        if member.classic is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member.member_id} does not use the classic protocol."
            )
        return member, member.classic

    def _check_generation(self, member: Member, request: SyncGroupRequest | HeartbeatRequest) -> None:
        if request.generation_id != member.member_epoch:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)


def _joined(
    member: Member, request: JoinGroupRequest, caller: Caller, subscription: ConsumerProtocolSubscription
) -> Member:
    """The member as its JoinGroup describes it."""
    return member._replace(
        instance_id=member.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=request.session_timeout_ms if caller.version == 0 else request.rebalance_timeout_ms,
        topics=topic_names(subscription.topics),
        regex="",
        client_id=caller.client_id,
        client_host=caller.host,
        classic=ClassicMetadata(
            request.session_timeout_ms, tuple((each.name, bytes(each.metadata)) for each in request.protocols)
        ),
    )
