"""Who is not heard of, or does not do in time what it must, is no longer part of the group.

Timers, by name: ("session", group, member) when a member is not heard of, ("rebalance", group, member) when it does not
give up what it must, ("rejoin" and "resync", group, member) for members of the classic protocol.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pylogd.coordinators.groups.consumer.group_settings import SESSION_TIMEOUT_MS
from pylogd.coordinators.groups.consumer.member import Member
from pylogd.protocol.messages import group_records as records

if TYPE_CHECKING:
    from pylogd.coordinators.groups.consumer.assigning import Assigning
    from pylogd.coordinators.groups.consumer.consumer_group import ConsumerGroup
    from pylogd.coordinators.groups.consumer.consumer_groups import ConsumerGroups
    from pylogd.coordinators.groups.consumer.migration.downgrade import Downgrade
    from pylogd.coordinators.shard.effects import Effects

logger = logging.getLogger(__name__)


class Fencing:
    def __init__(self, groups: ConsumerGroups, assignment: Assigning, downgrade: Downgrade) -> None:
        self._groups = groups
        self._assignment = assignment
        self._downgrade = downgrade

    def expect_heartbeat(self, effects: Effects, group_id: str, member: Member) -> None:
        """A member of the classic protocol has a session time-out of its own."""
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        else:
            timeout_ms = self._groups.settings.of_group(group_id, SESSION_TIMEOUT_MS)
        self.fence_after(effects, "session", group_id, member.member_id, timeout_ms, "its session ended")

    def fence_after(
        self, effects: Effects, what: str, group_id: str, member_id: str, delay_ms: int, reason: str
    ) -> None:
        event = lambda later: self._fence_late(later, group_id, member_id, reason)  # noqa: E731
        effects.after((what, group_id, member_id), delay_ms, event)

    def _fence_late(self, effects: Effects, group_id: str, member_id: str, reason: str) -> None:
        group = self._groups.get(group_id)
        if group is not None and member_id in group.members:
            logger.info("member %s of group %s is fenced: %s", member_id, group_id, reason)
            self.fence(effects, group, [group.members[member_id]])

    def expect_revocation(self, effects: Effects, group: ConsumerGroup, member: Member) -> None:
        group_id, member_id, epoch = group.group_id, member.member_id, member.member_epoch

        def expired(later: Effects) -> None:
            now = self._groups.get(group_id)
            if now is None or member_id not in now.members:
                return
            if now.members[member_id].member_epoch == epoch:
                reason = f"it did not leave epoch {epoch} in {member.rebalance_timeout_ms} ms"
                self._fence_late(later, group_id, member_id, reason)

        effects.after(("rebalance", group_id, member_id), member.rebalance_timeout_ms, expired)

    def fence(self, effects: Effects, group: ConsumerGroup, members: Iterable[Member]) -> None:
        """Members are no longer part of the group."""
        gone = {member.member_id: member for member in members}
        if not gone:
            return
        if self._downgrade.without(effects, group, gone):
            return
        leaving: dict[str, int] = {}
        for member in gone.values():
            if member.regex:
                leaving[member.regex] = leaving.get(member.regex, 0) + 1
        orphaned = [regex for regex, count in leaving.items() if group.regexes.get(regex) == count]
        for member_id in gone:
            delete_member(effects, group.group_id, member_id)
        for regex in orphaned:
            effects.write(records.ConsumerGroupRegularExpressionKey(group.group_id, regex), None)
        self._groups.bump(effects, group, self._groups.hash_of(group))
        for member_id in gone:
            group.cancel_timers(effects, member_id)
        if group.members and group.classic_count == len(group.members):
            # Nobody is left whose heartbeat would assign what has become free.
            self._assignment.update(effects, group)


def delete_member(effects: Effects, group_id: str, member_id: str) -> None:
    effects.write(records.ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id), None)
    effects.write(records.ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), None)
    effects.write(records.ConsumerGroupMemberMetadataKey(group_id, member_id), None)
