"""The classic group protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

Every method is a decision: it looks at the group, changes its soft state, and says the rest through `Effects`. Parked
requests are replies kept in the group and answered by a later event, most of them in `rebalancing`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from pylogd.config.values import Values
from pylogd.coordinators.groups.classic.classic_answers import join_error, joined, synced
from pylogd.coordinators.groups.classic.classic_group import ClassicGroup, Member, Protocols, State
from pylogd.coordinators.groups.classic.rebalancing import NEW_MEMBER_JOIN_TIMEOUT_MS, Rebalancing
from pylogd.coordinators.groups.group import UNKNOWN_MEMBER, Caller, Group
from pylogd.coordinators.shard.effects import WRITE_ERRORS, Effects, Reply, WriteRefused
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages import group_records as records
from pylogd.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pylogd.protocol.messages.join_group import JoinGroupRequest
from pylogd.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from pylogd.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

logger = logging.getLogger(__name__)

#: From this version on a new member is told its id first and joins with it.
MEMBER_ID_REQUIRED_SINCE = 4
SKIP_ASSIGNMENT_SINCE = 9


class ClassicProtocol:
    """`groups` is shared with the other protocols; `new_id()` makes the random part of a member id."""

    def __init__(
        self, groups: dict[str, Group], rebalancing: Rebalancing, config: Values, new_id: Callable[[], str]
    ) -> None:
        self._groups = groups
        self._rebalancing = rebalancing
        self._config = config
        self._new_id = new_id

    # -- JoinGroup

    def join(self, effects: Effects, reply: Reply, request: JoinGroupRequest, caller: Caller) -> None:
        group = self._rebalancing.find(request.group_id)
        member_id = request.member_id
        if group is None:
            if member_id != UNKNOWN_MEMBER:
                effects.answer(reply, join_error(ErrorCode.UNKNOWN_MEMBER_ID, member_id))
                return
            group = self._create(effects, request.group_id)
        if not self._accepts(group, member_id):
            group.remove(member_id)
            effects.answer(reply, join_error(ErrorCode.GROUP_MAX_SIZE_REACHED))
        elif not group.supports(request.protocol_type, [protocol.name for protocol in request.protocols]):
            effects.answer(reply, join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id))
        elif member_id == UNKNOWN_MEMBER:
            self._join_new(effects, reply, group, request, caller)
        elif member_id in group.pending_join:
            if request.group_instance_id is not None:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "a static member has no pending id")
            self._add(effects, reply, group, request, caller, member_id)
        else:
            self._join_again(effects, reply, group, request, caller)

    def _create(self, effects: Effects, group_id: str) -> ClassicGroup:
        """A new group is written at once, empty, so that it exists for whoever asks."""
        effects.write(*ClassicGroup(group_id, effects.now_ms).record({}))
        created = self._rebalancing.find(group_id)
        assert created is not None
        return created

    def _accepts(self, group: ClassicGroup, member_id: str) -> bool:
        size_max: int = self._config["group.max.size"]
        if group.state is State.EMPTY:
            return True
        if group.state is State.PREPARING_REBALANCE:
            # By who has joined, not by who is a member: the last ones to rejoin a group that is too large must go.
            return member_id in group.awaiting_join or len(group.awaiting_join) < size_max
        return member_id in group.members or len(group.members) < size_max

    def _join_new(
        self, effects: Effects, reply: Reply, group: ClassicGroup, request: JoinGroupRequest, caller: Caller
    ) -> None:
        instance_id = request.group_instance_id
        new_id = f"{instance_id if instance_id is not None else caller.client_id}-{self._new_id()}"
        if instance_id is not None:
            existing = group.static.get(instance_id)
            if existing is not None:
                self._replace_static(effects, reply, group, request, caller, existing, new_id)
                return
        elif caller.version >= MEMBER_ID_REQUIRED_SINCE:
            group.pending_join[new_id] = None
            self._rebalancing.expect_heartbeat(effects, group, new_id, request.session_timeout_ms)
            effects.answer(reply, join_error(ErrorCode.MEMBER_ID_REQUIRED, new_id))
            return
        self._add(effects, reply, group, request, caller, new_id)

    def _add(
        self,
        effects: Effects,
        reply: Reply,
        group: ClassicGroup,
        request: JoinGroupRequest,
        caller: Caller,
        member_id: str,
    ) -> None:
        member = Member(
            member_id,
            request.group_instance_id,
            caller.client_id,
            caller.host,
            _rebalance_timeout_ms(request, caller),
            request.session_timeout_ms,
            _protocols(request),
        )
        member.is_new = True
        if group.state is State.PREPARING_REBALANCE and group.previous_state is State.EMPTY:
            group.new_member_added = True
        group.add(member, request.protocol_type, reply)
        self._rebalancing.expect_heartbeat(effects, group, member_id, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalancing.rebalance(effects, group, f"adding new member {member_id}; client reason: {_reason(request)}")

    def _join_again(
        self, effects: Effects, reply: Reply, group: ClassicGroup, request: JoinGroupRequest, caller: Caller
    ) -> None:
        member_id = request.member_id
        try:
            group.check_member(member_id, request.group_instance_id)
        except KafkaError as refusal:
            effects.answer(reply, join_error(refusal.code, member_id))
            return
        member = group.members[member_id]
        changed = member.protocols != _protocols(request)
        if group.state is State.EMPTY:
            effects.answer(reply, join_error(ErrorCode.UNKNOWN_MEMBER_ID, member_id))
            return
        if group.state is State.COMPLETING_REBALANCE and not changed:
            # It has probably missed the response to its first JoinGroup.
            effects.answer(reply, joined(group, member_id))
            return
        if group.state is State.STABLE and not changed and member_id != group.leader:
            answer = joined(group, member_id)
            effects.answer(reply, answer)
            return
        # A leader that joins again wants a rebalance, whatever its reason (such as new partitions).
        group.update(member, _protocols(request), _rebalance_timeout_ms(request, caller), request.session_timeout_ms)
        self._park_join(effects, group, member_id, reply)
        self._rebalancing.rebalance(
            effects, group, f"member {member_id} joins again; client reason: {_reason(request)}"
        )

    def _park_join(self, effects: Effects, group: ClassicGroup, member_id: str, reply: Reply) -> None:
        superseded = group.awaiting_join.get(member_id)
        if superseded is not None:
            effects.answer(superseded, join_error(ErrorCode.REBALANCE_IN_PROGRESS, member_id))
        group.awaiting_join[member_id] = reply

    def _replace_static(
        self,
        effects: Effects,
        reply: Reply,
        group: ClassicGroup,
        request: JoinGroupRequest,
        caller: Caller,
        old_id: str,
        new_id: str,
    ) -> None:
        """A static member comes back: it takes over the place of its former self, which is fenced."""
        if group.state is State.STABLE:
            effects.check_writable()
        leader_before = group.leader
        parked = group.awaiting_join.get(old_id)
        if parked is not None:
            effects.answer(parked, join_error(ErrorCode.FENCED_INSTANCE_ID, old_id))
        parked = group.awaiting_sync.get(old_id)
        if parked is not None:
            effects.answer(parked, SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID))
        assert request.group_instance_id is not None
        member = group.replace_static(request.group_instance_id, old_id, new_id)
        effects.cancel(("heartbeat", group.group_id, old_id))
        self._rebalancing.expect_heartbeat(effects, group, new_id, member.session_timeout_ms)
        group.update(member, _protocols(request), _rebalance_timeout_ms(request, caller), request.session_timeout_ms)
        if group.state is State.STABLE:
            if group.select_protocol() == group.protocol:
                # Nothing changes for the others: the new id is written, and there is no rebalance.
                effects.write(*group.record({each.member_id: each.assignment for each in group.members.values()}))
                is_leader = group.leader == new_id
                skip = caller.version >= SKIP_ASSIGNMENT_SINCE
                answer = joined(group, new_id, with_members=skip)
                answer.skip_assignment = skip and is_leader
                if not skip:
                    # Old clients cannot skip the assignment, so a leader is made to believe that it does not lead.
                    answer.leader = leader_before or ""
                effects.answer(reply, answer)
                return
            group.awaiting_join[new_id] = reply
            self._rebalancing.rebalance(effects, group, f"static member {new_id} changes the protocol of the group")
        else:
            group.awaiting_join[new_id] = reply
            if group.state is State.COMPLETING_REBALANCE:
                # The leader may have seen the old id, for which no assignment would ever be asked.
                self._rebalancing.prepare(effects, group, f"static member {new_id} joins again")
            else:
                self._rebalancing.complete_if_joined(effects, group)

    # -- SyncGroup

    def sync(self, effects: Effects, reply: Reply, request: SyncGroupRequest) -> None:
        group = self._rebalancing.find(request.group_id)
        if group is None or group.state is State.EMPTY:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        member_id = request.member_id
        group.check_member(member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if _differs(request.protocol_type, group.protocol_type) or _differs(request.protocol_name, group.protocol):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.state is State.PREPARING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        group.pending_sync.pop(member_id, None)
        if not group.pending_sync:
            effects.cancel(("sync", group.group_id))
        if group.state is State.STABLE:
            effects.answer(reply, synced(group, group.members[member_id]))
            return
        superseded = group.awaiting_sync.get(member_id)
        if superseded is not None:
            effects.answer(superseded, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        group.awaiting_sync[member_id] = reply
        if member_id == group.leader:
            self._take_assignment(effects, group, request)

    def _take_assignment(self, effects: Effects, group: ClassicGroup, request: SyncGroupRequest) -> None:
        """The leader's assignment is written, which makes the group stable, and handed to everybody who asked."""
        assignments = dict.fromkeys(group.members, b"")
        for given in request.assignments:
            assignments[given.member_id] = bytes(given.assignment)
        try:
            effects.write(*group.record(assignments))
        except WriteRefused as refusal:
            logger.warning("the assignment of group %s cannot be written: %s", group.group_id, refusal.message)
            self._rebalancing.refuse_syncs(effects, group, WRITE_ERRORS[refusal.code])
            self._rebalancing.prepare(effects, group, "its assignment could not be written")
            return
        for member_id, parked in group.awaiting_sync.items():
            member = group.members[member_id]
            effects.answer(parked, synced(group, member))
            self._rebalancing.expect_heartbeat(effects, group, member_id, member.session_timeout_ms)
        group.awaiting_sync.clear()

    # -- Heartbeat

    def heartbeat(self, effects: Effects, reply: Reply, request: HeartbeatRequest) -> None:
        group = self._rebalancing.find(request.group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        group.check_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if group.state is State.EMPTY:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        member = group.members[request.member_id]
        self._rebalancing.expect_heartbeat(effects, group, member.member_id, member.session_timeout_ms)
        rebalancing = group.state is State.PREPARING_REBALANCE
        effects.answer(
            reply, HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS if rebalancing else ErrorCode.NONE)
        )

    def committed(self, effects: Effects, group: ClassicGroup, member_id: str) -> None:
        """An offset commit is as good as a heartbeat."""
        member = group.members.get(member_id)
        if member is not None and group.state in (State.STABLE, State.PREPARING_REBALANCE):
            self._rebalancing.expect_heartbeat(effects, group, member_id, member.session_timeout_ms)

    # -- LeaveGroup

    def leave(self, effects: Effects, reply: Reply, request: LeaveGroupRequest) -> None:
        group = self._rebalancing.find(request.group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        answers = []
        for identity in request.members:
            code = self._leave_one(effects, group, identity)
            answers.append(
                MemberResponse(
                    member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code
                )
            )
        if any(answer.error_code == ErrorCode.NONE for answer in answers):
            if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
                self._rebalancing.rebalance(effects, group, "members have left")
            elif group.state is State.PREPARING_REBALANCE:
                self._rebalancing.complete_if_joined(effects, group)
        effects.answer(reply, LeaveGroupResponse(members=answers))

    def _leave_one(self, effects: Effects, group: ClassicGroup, identity: MemberIdentity) -> ErrorCode:
        member_id, instance_id = identity.member_id, identity.group_instance_id
        if member_id == UNKNOWN_MEMBER:
            # An administrator removes a static member by its instance id.
            member_id = group.static.get(instance_id, UNKNOWN_MEMBER) if instance_id is not None else UNKNOWN_MEMBER
            if member_id == UNKNOWN_MEMBER:
                return ErrorCode.UNKNOWN_MEMBER_ID
        elif member_id in group.pending_join:
            group.remove(member_id)
            effects.cancel(("heartbeat", group.group_id, member_id))
            return ErrorCode.NONE
        else:
            try:
                group.check_member(member_id, instance_id)
            except KafkaError as refusal:
                return refusal.code
        logger.info("member %s leaves group %s: %s", member_id, group.group_id, identity.reason or "no reason given")
        self._rebalancing.drop(effects, group, group.members[member_id])
        return ErrorCode.NONE

    # -- life of the shard

    def replay(self, key: records.GroupMetadataKey, value: records.GroupMetadataValue | None) -> None:
        group = self._rebalancing.find(key.group)
        if value is None:
            if group is not None:
                del self._groups[key.group]
            return
        if group is None:
            group = self._groups[key.group] = ClassicGroup(key.group, value.current_state_timestamp)
        group.restore(value)


def _protocols(request: JoinGroupRequest) -> Protocols:
    return [(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols]


def _rebalance_timeout_ms(request: JoinGroupRequest, caller: Caller) -> int:
    """The oldest version has only one time-out."""
    timeout_ms: int = request.session_timeout_ms if caller.version == 0 else request.rebalance_timeout_ms
    return timeout_ms


def _reason(request: JoinGroupRequest) -> str:
    return request.reason or "not provided"


def _differs(given: str | None, actual: str | None) -> bool:
    return given is not None and actual is not None and given != actual
