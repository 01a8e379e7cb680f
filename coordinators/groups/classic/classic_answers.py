"""Responses of the classic protocol that say where the group stands."""

from __future__ import annotations

from pylogd.coordinators.groups.classic.classic_group import ClassicGroup, Member, State
from pylogd.coordinators.groups.group import UNKNOWN_MEMBER
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from pylogd.protocol.messages.sync_group import SyncGroupResponse


def join_error(code: ErrorCode, member_id: str = UNKNOWN_MEMBER) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, protocol_name=None, member_id=member_id)


def joined(group: ClassicGroup, member_id: str, *, with_members: bool = True) -> JoinGroupResponse:
    """The present generation, for a leader with everybody's metadata."""
    members: list[JoinGroupResponseMember] = []
    if with_members and member_id == group.leader and group.state is not State.PREPARING_REBALANCE:
        members = [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata(group.protocol),
            )
            for member in group.members.values()
        ]
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.leader or "",
        member_id=member_id,
        members=members,
    )


def synced(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
    )
