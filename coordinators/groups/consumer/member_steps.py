"""What a member brings is written, the group is brought up to date, and the member takes its next step.

Every check has come before: what an event has written cannot be taken back. Records are replayed as they are written,
so each step below sees the group as the step before left it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pylogd.coordinators.groups.consumer.fencing import Fencing, delete_member
from pylogd.coordinators.groups.consumer.member import Member, MemberState
from pylogd.coordinators.groups.consumer.reconcile import Reported, reconcile
from pylogd.coordinators.groups.consumer.subscribed_topics import subscribed_ids
from pylogd.protocol.messages import group_records as records

if TYPE_CHECKING:
    from pylogd.coordinators.groups.consumer.assigning import Assigning
    from pylogd.coordinators.groups.consumer.consumer_group import ConsumerGroup
    from pylogd.coordinators.groups.consumer.consumer_groups import ConsumerGroups
    from pylogd.coordinators.groups.consumer.patterns import Patterns
    from pylogd.coordinators.shard.effects import Effects


class MemberSteps:
    def __init__(self, groups: ConsumerGroups, assignment: Assigning, patterns: Patterns, fencing: Fencing) -> None:
        self._groups = groups
        self._assignment = assignment
        self._patterns = patterns
        self._fencing = fencing

    def take_step(
        self,
        effects: Effects,
        group_id: str,
        member: Member,
        updated: Member,
        replaced: Member | None,
        owned: Reported,
        *,
        unsettled: bool = False,
    ) -> Member:
        """Write what is new about a member, bring the group up to date, and move the member on. The partitions of an
        `unsettled` group are assigned anew, whether anything is new or not."""
        subscription_changed = self.update_member(effects, group_id, member, updated, replaced, unsettled=unsettled)
        group = self._groups.find(group_id)
        self._assignment.update(effects, group)
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
        unsettled: bool = False,
    ) -> bool:
        """Did its subscription change? A pattern that is new to the group changes nothing until it is resolved, unless
        `always_bump`."""
        group = self._groups.get(group_id)
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
        group = self._groups.find(group_id)
        self._patterns.refresh(effects, group, introduced)
        topics_changed = updated.topics != member.topics
        bump = topics_changed or resolved or unsettled or (always_bump and regex_changed)
        if bump or group.refresh_is_due(effects.now_ms):
            self._update_metadata(effects, group, bump)
        return topics_changed or regex_changed

    def _replace(self, effects: Effects, group: ConsumerGroup, old: Member, new: Member) -> None:
        """A static member comes back under a new id and takes everything over."""
        target = group.target.get(old.member_id, {})
        group.cancel_timers(effects, old.member_id)
        delete_member(effects, group.group_id, old.member_id)
        effects.write(*new.subscription_record(group.group_id))
        self._assignment.write(effects, group.group_id, new.member_id, target)
        effects.write(*new.assignment_record(group.group_id))

    def _update_metadata(self, effects: Effects, group: ConsumerGroup, bump: bool) -> None:
        hash_ = self._groups.hash_of(group)
        if bump or hash_ != group.metadata_hash:
            self._groups.bump(effects, group, hash_)
        group.refreshed(effects.now_ms)
        if group.has_partition_metadata:
            effects.write(records.ConsumerGroupPartitionMetadataKey(group.group_id), None)

    def reconcile(
        self, effects: Effects, group: ConsumerGroup, member: Member, subscription_changed: bool, owned: Reported
    ) -> Member:
        epoch = group.assignment_epoch
        if not subscription_changed and member.is_reconciled_to(epoch):
            return member
        target = group.target.get(member.member_id, {})
        subscribed = subscribed_ids(self._groups.image, group.topics_of(member))
        updated = reconcile(member, epoch, target, subscribed, subscription_changed, group.has_owner, owned)
        if updated != member:
            # Timers first: a member that gave up what it had to is not fenced because nobody can write that down now.
            if updated.classic is None:
                if updated.state is MemberState.UNREVOKED_PARTITIONS:
                    self._fencing.expect_revocation(effects, group, updated)
                else:
                    effects.cancel(("rebalance", group.group_id, updated.member_id))
            effects.write(*updated.assignment_record(group.group_id))
        return updated
