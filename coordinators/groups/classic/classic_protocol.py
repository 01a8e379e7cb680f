"""The classic group protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and what happens when nobody asks.

Every method is a decision: it looks at the group, changes its soft state, and says the rest through `Effects`. Parked
requests are replies kept in the group and answered by a later event.

Timers, by name: ("heartbeat", group, member) when a session ends, ("join", group) when a rebalance stops waiting for
members, ("sync", group) when it stops waiting for their SyncGroup.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from pylogd.config.values import Values
from pylogd.coordinators.groups.classic.classic_group import ClassicGroup, Member, Protocols, State
from pylogd.coordinators.groups.group import CLASSIC, UNKNOWN_MEMBER
from pylogd.coordinators.shard.effects import WRITE_ERRORS, Effects, WriteRefused
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages import group_records as records
from pylogd.protocol.messages.heartbeat import HeartbeatResponse
from pylogd.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from pylogd.protocol.messages.leave_group import LeaveGroupResponse, MemberResponse
from pylogd.protocol.messages.sync_group import SyncGroupResponse

logger = logging.getLogger(__name__)

#: A new member whose JoinGroup is parked is given up after this time: it cannot send heartbeats, and nobody can see
#: whether it is still there.
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
#: From this version on a new member is told its id first and joins with it.
MEMBER_ID_REQUIRED_SINCE = 4
SKIP_ASSIGNMENT_SINCE = 9


class Caller(NamedTuple):
    """Who sends a request, at which version."""

    version: int
    client_id: str
    host: str


class ClassicProtocol:
    """`groups` is shared with the other protocols; `new_id()` makes the random part of a member id."""

    def __init__(self, groups: dict[str, Any], config: Values, new_id: Callable[[], str]) -> None:
        self.groups = groups
        self.config = config
        self._new_id = new_id

    def find(self, group_id: str) -> ClassicGroup | None:
        group = self.groups.get(group_id)
        return group if group is not None and group.kind == CLASSIC else None

    # -- JoinGroup

    def join(self, effects: Effects, reply: Any, request: Any, caller: Caller) -> None:
        group = self.find(request.group_id)
        member_id = request.member_id
        if group is None:
            if member_id != UNKNOWN_MEMBER:
                effects.answer(reply, _join_error(ErrorCode.UNKNOWN_MEMBER_ID, member_id))
                return
            group = self._create(effects, request.group_id)
        if not self._accepts(group, member_id):
            group.remove(member_id)
            effects.answer(reply, _join_error(ErrorCode.GROUP_MAX_SIZE_REACHED))
        elif not group.supports(request.protocol_type, [protocol.name for protocol in request.protocols]):
            effects.answer(reply, _join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id))
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
        created: ClassicGroup = self.groups[group_id]
        return created

    def _accepts(self, group: ClassicGroup, member_id: str) -> bool:
        size_max: int = self.config["group.max.size"]
        if group.state is State.EMPTY:
            return True
        if group.state is State.PREPARING_REBALANCE:
            # By who has joined, not by who is a member: the last ones to rejoin a group that is too large must go.
            return member_id in group.awaiting_join or len(group.awaiting_join) < size_max
        return member_id in group.members or len(group.members) < size_max

    def _join_new(self, effects: Effects, reply: Any, group: ClassicGroup, request: Any, caller: Caller) -> None:
        instance_id = request.group_instance_id
        new_id = f"{instance_id if instance_id is not None else caller.client_id}-{self._new_id()}"
        if instance_id is not None:
            existing = group.static.get(instance_id)
            if existing is not None:
                self._replace_static(effects, reply, group, request, caller, existing, new_id)
                return
        elif caller.version >= MEMBER_ID_REQUIRED_SINCE:
            group.pending_join[new_id] = None
            self._expect_heartbeat(effects, group, new_id, request.session_timeout_ms)
            effects.answer(reply, _join_error(ErrorCode.MEMBER_ID_REQUIRED, new_id))
            return
        self._add(effects, reply, group, request, caller, new_id)

    def _add(
        self, effects: Effects, reply: Any, group: ClassicGroup, request: Any, caller: Caller, member_id: str
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
        self._expect_heartbeat(effects, group, member_id, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance(effects, group, f"adding new member {member_id}; client reason: {_reason(request)}")

    def _join_again(self, effects: Effects, reply: Any, group: ClassicGroup, request: Any, caller: Caller) -> None:
        member_id = request.member_id
        try:
            group.check_member(member_id, request.group_instance_id)
        except KafkaError as refusal:
            effects.answer(reply, _join_error(refusal.code, member_id))
            return
        member = group.members[member_id]
        changed = member.protocols != _protocols(request)
        if group.state is State.EMPTY:
            effects.answer(reply, _join_error(ErrorCode.UNKNOWN_MEMBER_ID, member_id))
            return
        if group.state is State.COMPLETING_REBALANCE and not changed:
            # It has probably missed the response to its first JoinGroup.
            effects.answer(reply, _joined(group, member_id))
            return
        if group.state is State.STABLE and not changed and member_id != group.leader:
            answer = _joined(group, member_id)
            effects.answer(reply, answer)
            return
        # A leader that joins again wants a rebalance, whatever its reason (such as new partitions).
        group.update(member, _protocols(request), _rebalance_timeout_ms(request, caller), request.session_timeout_ms)
        self._park_join(effects, group, member_id, reply)
        self._rebalance(effects, group, f"member {member_id} joins again; client reason: {_reason(request)}")

    def _park_join(self, effects: Effects, group: ClassicGroup, member_id: str, reply: Any) -> None:
        superseded = group.awaiting_join.get(member_id)
        if superseded is not None:
            effects.answer(superseded, _join_error(ErrorCode.REBALANCE_IN_PROGRESS, member_id))
        group.awaiting_join[member_id] = reply

    def _replace_static(
        self,
        effects: Effects,
        reply: Any,
        group: ClassicGroup,
        request: Any,
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
            effects.answer(parked, _join_error(ErrorCode.FENCED_INSTANCE_ID, old_id))
        parked = group.awaiting_sync.get(old_id)
        if parked is not None:
            effects.answer(parked, SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID))
        member = group.replace_static(request.group_instance_id, old_id, new_id)
        effects.cancel(("heartbeat", group.group_id, old_id))
        self._expect_heartbeat(effects, group, new_id, member.session_timeout_ms)
        group.update(member, _protocols(request), _rebalance_timeout_ms(request, caller), request.session_timeout_ms)
        if group.state is State.STABLE:
            if group.select_protocol() == group.protocol:
                # Nothing changes for the others: the new id is written, and there is no rebalance.
                effects.write(*group.record({each.member_id: each.assignment for each in group.members.values()}))
                is_leader = group.leader == new_id
                skip = caller.version >= SKIP_ASSIGNMENT_SINCE
                answer = _joined(group, new_id, with_members=skip)
                answer.skip_assignment = skip and is_leader
                if not skip:
                    # Old clients cannot skip the assignment, so a leader is made to believe that it does not lead.
                    answer.leader = leader_before or ""
                effects.answer(reply, answer)
                return
            group.awaiting_join[new_id] = reply
            self._rebalance(effects, group, f"static member {new_id} changes the protocol of the group")
        else:
            group.awaiting_join[new_id] = reply
            if group.state is State.COMPLETING_REBALANCE:
                # The leader may have seen the old id, for which no assignment would ever be asked.
                self.prepare_rebalance(effects, group, f"static member {new_id} joins again")
            else:
                self._complete_if_joined(effects, group)

    # -- rebalance

    def _rebalance(self, effects: Effects, group: ClassicGroup, reason: str) -> None:
        if group.can_rebalance:
            self.prepare_rebalance(effects, group, reason)
        else:
            self._complete_if_joined(effects, group)

    def prepare_rebalance(self, effects: Effects, group: ClassicGroup, reason: str) -> None:
        if group.state is State.COMPLETING_REBALANCE:
            self._refuse_syncs(effects, group, ErrorCode.REBALANCE_IN_PROGRESS)
        group.pending_sync.clear()
        effects.cancel(("sync", group.group_id))
        initial = group.state is State.EMPTY
        group.transition(State.PREPARING_REBALANCE, effects.now_ms)
        logger.info("group %s prepares a rebalance after generation %d: %s", group.group_id, group.generation, reason)
        if initial:
            # More members are likely to come: they are given some time, once.
            delay_ms: int = self.config["group.initial.rebalance.delay.ms"]
            left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._wait_for_more(effects, group, delay_ms, left_ms)
        elif group.all_joined:
            self._complete_join(effects, group)
        else:
            self._wait_for_joins(effects, group)

    def _wait_for_more(self, effects: Effects, group: ClassicGroup, delay_ms: int, left_ms: int) -> None:
        group_id = group.group_id
        event = lambda later: self._initial_delay_over(later, group_id, delay_ms, left_ms)  # noqa: E731
        effects.after(("join", group_id), delay_ms, event)

    def _initial_delay_over(self, effects: Effects, group_id: str, delay_ms: int, left_ms: int) -> None:
        group = self.find(group_id)
        if group is None or group.state is not State.PREPARING_REBALANCE:
            return
        if group.new_member_added and left_ms:
            group.new_member_added = False
            next_ms = min(self.config["group.initial.rebalance.delay.ms"], left_ms)
            self._wait_for_more(effects, group, next_ms, max(left_ms - delay_ms, 0))
        else:
            self._complete_join(effects, group)

    def _wait_for_joins(self, effects: Effects, group: ClassicGroup) -> None:
        group_id = group.group_id
        effects.after(("join", group_id), group.rebalance_timeout_ms, lambda later: self._join_expired(later, group_id))

    def _join_expired(self, effects: Effects, group_id: str) -> None:
        group = self.find(group_id)
        if group is not None and group.state is State.PREPARING_REBALANCE:
            self._complete_join(effects, group)

    def _complete_if_joined(self, effects: Effects, group: ClassicGroup) -> None:
        waits = group.state is State.PREPARING_REBALANCE and group.previous_state is not State.EMPTY
        if waits and group.all_joined:
            self._complete_join(effects, group)

    def _complete_join(self, effects: Effects, group: ClassicGroup) -> None:
        """Waiting is over: the next generation begins with those who have joined."""
        effects.cancel(("join", group.group_id))
        for member in tuple(group.members.values()):
            if member.instance_id is None and member.member_id not in group.awaiting_join:
                group.remove(member.member_id)
                effects.cancel(("heartbeat", group.group_id, member.member_id))
        if not group.members:
            self._become_empty(effects, group)
            return
        if not group.elect_joined_leader():
            # Only static members are left and none has come back: their sessions decide.
            self._wait_for_joins(effects, group)
            return
        group.next_generation(effects.now_ms)
        logger.info("group %s has %d members in generation %d", group.group_id, len(group.members), group.generation)
        for member in group.members.values():
            parked = group.awaiting_join.pop(member.member_id, None)
            if parked is not None:
                effects.answer(parked, _joined(group, member.member_id))
            self._expect_heartbeat(effects, group, member.member_id, member.session_timeout_ms)
            member.is_new = False
            group.pending_sync[member.member_id] = None
        group_id, generation = group.group_id, group.generation
        expired = lambda later: self._sync_expired(later, group_id, generation)  # noqa: E731
        effects.after(("sync", group_id), group.rebalance_timeout_ms, expired)

    def _become_empty(self, effects: Effects, group: ClassicGroup) -> None:
        key, value, version = group.record({}, effects.now_ms)
        value.generation += 1
        value.protocol = None
        effects.write(key, value, version)
        logger.info("group %s is empty in generation %d", group.group_id, group.generation)

    def _sync_expired(self, effects: Effects, group_id: str, generation: int) -> None:
        group = self.find(group_id)
        if group is None or group.generation != generation:
            return
        if group.state not in (State.COMPLETING_REBALANCE, State.STABLE) or not group.pending_sync:
            return
        late = list(group.pending_sync)
        for member_id in late:
            group.remove(member_id)
            effects.cancel(("heartbeat", group_id, member_id))
        self.prepare_rebalance(effects, group, f"no SyncGroup came from {', '.join(late)}")

    # -- SyncGroup

    def sync(self, effects: Effects, reply: Any, request: Any) -> None:
        group = self.find(request.group_id)
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
            effects.answer(reply, _synced(group, group.members[member_id]))
            return
        superseded = group.awaiting_sync.get(member_id)
        if superseded is not None:
            effects.answer(superseded, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        group.awaiting_sync[member_id] = reply
        if member_id == group.leader:
            self._take_assignment(effects, group, request)

    def _take_assignment(self, effects: Effects, group: ClassicGroup, request: Any) -> None:
        """The leader's assignment is written, which makes the group stable, and handed to everybody who asked."""
        assignments = dict.fromkeys(group.members, b"")
        for given in request.assignments:
            assignments[given.member_id] = bytes(given.assignment)
        try:
            effects.write(*group.record(assignments))
        except WriteRefused as refusal:
            logger.warning("the assignment of group %s cannot be written: %s", group.group_id, refusal.message)
            self._refuse_syncs(effects, group, WRITE_ERRORS[refusal.code])
            self.prepare_rebalance(effects, group, "its assignment could not be written")
            return
        for member_id, parked in group.awaiting_sync.items():
            member = group.members[member_id]
            effects.answer(parked, _synced(group, member))
            self._expect_heartbeat(effects, group, member_id, member.session_timeout_ms)
        group.awaiting_sync.clear()

    def _refuse_syncs(self, effects: Effects, group: ClassicGroup, code: ErrorCode) -> None:
        for member in group.members.values():
            member.assignment = b""
        for member_id, parked in group.awaiting_sync.items():
            effects.answer(parked, SyncGroupResponse(error_code=code))
            self._expect_heartbeat(effects, group, member_id, group.members[member_id].session_timeout_ms)
        group.awaiting_sync.clear()

    # -- Heartbeat

    def heartbeat(self, effects: Effects, reply: Any, request: Any) -> None:
        group = self.find(request.group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        group.check_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if group.state is State.EMPTY:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        member = group.members[request.member_id]
        self._expect_heartbeat(effects, group, member.member_id, member.session_timeout_ms)
        rebalancing = group.state is State.PREPARING_REBALANCE
        effects.answer(
            reply, HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS if rebalancing else ErrorCode.NONE)
        )

    def committed(self, effects: Effects, group: ClassicGroup, member_id: str) -> None:
        """An offset commit is as good as a heartbeat."""
        member = group.members.get(member_id)
        if member is not None and group.state in (State.STABLE, State.PREPARING_REBALANCE):
            self._expect_heartbeat(effects, group, member_id, member.session_timeout_ms)

    def _expect_heartbeat(self, effects: Effects, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
        group_id = group.group_id
        expired = lambda later: self._session_expired(later, group_id, member_id)  # noqa: E731
        effects.after(("heartbeat", group_id, member_id), timeout_ms, expired)

    def _session_expired(self, effects: Effects, group_id: str, member_id: str) -> None:
        group = self.find(group_id)
        if group is None:
            return
        if member_id in group.pending_join:
            group.remove(member_id)
            if group.state is State.PREPARING_REBALANCE and group.all_joined:
                self._complete_join(effects, group)
            return
        member = group.members.get(member_id)
        if member is None:
            return
        parked = member_id in group.awaiting_join or member_id in group.awaiting_sync
        if parked and not member.is_new:
            return  # it waits for us, not we for it
        logger.info("member %s of group %s has failed", member_id, group_id)
        self._drop(effects, group, member)
        if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
            self._rebalance(effects, group, f"the session of member {member_id} ended")
        elif group.state is State.PREPARING_REBALANCE and group.all_joined:
            self._complete_join(effects, group)

    def _drop(self, effects: Effects, group: ClassicGroup, member: Member) -> None:
        """A member goes; if its JoinGroup is parked and it is alive after all, it will try again."""
        parked = group.awaiting_join.get(member.member_id)
        if parked is not None:
            effects.answer(parked, _join_error(ErrorCode.UNKNOWN_MEMBER_ID))
        parked = group.awaiting_sync.get(member.member_id)
        if parked is not None:
            effects.answer(parked, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        effects.cancel(("heartbeat", group.group_id, member.member_id))
        group.remove(member.member_id)

    # -- LeaveGroup

    def leave(self, effects: Effects, reply: Any, request: Any) -> None:
        group = self.find(request.group_id)
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
                self._rebalance(effects, group, "members have left")
            elif group.state is State.PREPARING_REBALANCE:
                self._complete_if_joined(effects, group)
        effects.answer(reply, LeaveGroupResponse(members=answers))

    def _leave_one(self, effects: Effects, group: ClassicGroup, identity: Any) -> ErrorCode:
        member_id, instance_id = identity.member_id, identity.group_instance_id
        if member_id == UNKNOWN_MEMBER:
            # An administrator removes a static member by its instance id.
            member_id = group.static.get(instance_id) if instance_id is not None else None
            if member_id is None:
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
        self._drop(effects, group, group.members[member_id])
        return ErrorCode.NONE

    # -- life of the shard

    def replay(self, key: records.GroupMetadataKey, value: records.GroupMetadataValue | None) -> None:
        group = self.find(key.group)
        if value is None:
            if group is not None:
                del self.groups[key.group]
            return
        if group is None:
            group = self.groups[key.group] = ClassicGroup(key.group, value.current_state_timestamp)
        group.restore(value)

    def loaded(self, effects: Effects, group: ClassicGroup) -> None:
        """Members get a whole session to show that they are alive."""
        for member in group.members.values():
            self._expect_heartbeat(effects, group, member.member_id, member.session_timeout_ms)
        if len(group.members) > self.config["group.max.size"]:
            self.prepare_rebalance(effects, group, "the group has more members than are allowed now")


def _protocols(request: Any) -> Protocols:
    return [(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols]


def _rebalance_timeout_ms(request: Any, caller: Caller) -> int:
    """The oldest version has only one time-out."""
    timeout_ms: int = request.session_timeout_ms if caller.version == 0 else request.rebalance_timeout_ms
    return timeout_ms


def _reason(request: Any) -> str:
    return request.reason or "not provided"


def _differs(given: str | None, actual: str | None) -> bool:
    return given is not None and actual is not None and given != actual


def _join_error(code: ErrorCode, member_id: str = UNKNOWN_MEMBER) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, protocol_name=None, member_id=member_id)


def _joined(group: ClassicGroup, member_id: str, *, with_members: bool = True) -> JoinGroupResponse:
    """The present generation, for a leader with everybody's metadata."""
    members: list[Any] = []
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


def _synced(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
    )
