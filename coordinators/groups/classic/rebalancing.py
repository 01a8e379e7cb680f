"""From one generation of a classic group to the next: who is waited for, and what happens when nobody comes.

A rebalance waits for members to join, begins the generation with those who did, and waits for their SyncGroup. A member
that is not heard of for the length of its session is dropped, which begins a rebalance in turn.

Timers, by name: ("heartbeat", group, member) when a session ends, ("join", group) when a rebalance stops waiting for
members, ("sync", group) when it stops waiting for their SyncGroup.
"""

from __future__ import annotations

import logging

from pylogd.config.values import Values
from pylogd.coordinators.groups.classic.classic_answers import join_error, joined
from pylogd.coordinators.groups.classic.classic_group import ClassicGroup, Member, State
from pylogd.coordinators.groups.group import Group
from pylogd.coordinators.shard.effects import Effects
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages.sync_group import SyncGroupResponse

logger = logging.getLogger(__name__)

#: A new member whose JoinGroup is parked is given up after this time: it cannot send heartbeats, and nobody can see
#: whether it is still there.
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000


class Rebalancing:
    """`groups` are those of the shard, whatever their protocol."""

    def __init__(self, groups: dict[str, Group], config: Values) -> None:
        self._groups = groups
        self._config = config

    def find(self, group_id: str) -> ClassicGroup | None:
        group = self._groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    # -- rebalance

    def rebalance(self, effects: Effects, group: ClassicGroup, reason: str) -> None:
        """Who is a member, or what it brings, has changed."""
        if group.can_rebalance:
            self.prepare(effects, group, reason)
        else:
            self.complete_if_joined(effects, group)

    def prepare(self, effects: Effects, group: ClassicGroup, reason: str) -> None:
        if group.state is State.COMPLETING_REBALANCE:
            self.refuse_syncs(effects, group, ErrorCode.REBALANCE_IN_PROGRESS)
        group.pending_sync.clear()
        effects.cancel(("sync", group.group_id))
        initial = group.state is State.EMPTY
        group.transition(State.PREPARING_REBALANCE, effects.now_ms)
        logger.info("group %s prepares a rebalance after generation %d: %s", group.group_id, group.generation, reason)
        if initial:
            # More members are likely to come: they are given some time, once.
            delay_ms: int = self._config["group.initial.rebalance.delay.ms"]
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
            next_ms = min(self._config["group.initial.rebalance.delay.ms"], left_ms)
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

    def complete_if_joined(self, effects: Effects, group: ClassicGroup) -> None:
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
                effects.answer(parked, joined(group, member.member_id))
            self.expect_heartbeat(effects, group, member.member_id, member.session_timeout_ms)
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
        self.prepare(effects, group, f"no SyncGroup came from {', '.join(late)}")

    def refuse_syncs(self, effects: Effects, group: ClassicGroup, code: ErrorCode) -> None:
        for member in group.members.values():
            member.assignment = b""
        for member_id, parked in group.awaiting_sync.items():
            effects.answer(parked, SyncGroupResponse(error_code=code))
            self.expect_heartbeat(effects, group, member_id, group.members[member_id].session_timeout_ms)
        group.awaiting_sync.clear()

    # -- sessions

    def expect_heartbeat(self, effects: Effects, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
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
        self.drop(effects, group, member)
        if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
            self.rebalance(effects, group, f"the session of member {member_id} ended")
        elif group.state is State.PREPARING_REBALANCE and group.all_joined:
            self._complete_join(effects, group)

    def drop(self, effects: Effects, group: ClassicGroup, member: Member) -> None:
        """A member goes; if its JoinGroup is parked and it is alive after all, it will try again."""
        parked = group.awaiting_join.get(member.member_id)
        if parked is not None:
            effects.answer(parked, join_error(ErrorCode.UNKNOWN_MEMBER_ID))
        parked = group.awaiting_sync.get(member.member_id)
        if parked is not None:
            effects.answer(parked, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        effects.cancel(("heartbeat", group.group_id, member.member_id))
        group.remove(member.member_id)

    def loaded(self, effects: Effects, group: ClassicGroup) -> None:
        """Members get a whole session to show that they are alive."""
        for member in group.members.values():
            self.expect_heartbeat(effects, group, member.member_id, member.session_timeout_ms)
        if len(group.members) > self._config["group.max.size"]:
            self.prepare(effects, group, "the group has more members than are allowed now")
