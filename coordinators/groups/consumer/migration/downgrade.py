"""A consumer group becomes a classic group again when the last member of the new protocol leaves it
(group.consumer.migration.policy)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pylogd.coordinators.groups.classic.classic_group import ClassicGroup
from pylogd.coordinators.groups.classic.classic_group import Member as ClassicMember
from pylogd.coordinators.groups.consumer.consumer_group import CONSUMER_PROTOCOL_TYPE, ConsumerGroup
from pylogd.coordinators.groups.consumer.member import Member
from pylogd.coordinators.groups.consumer.migration.embedded import encode_assignment, subscription_version

if TYPE_CHECKING:
    from pylogd.coordinators.groups.classic.rebalancing import Rebalancing
    from pylogd.coordinators.groups.consumer.consumer_groups import ConsumerGroups
    from pylogd.coordinators.shard.effects import Effects

logger = logging.getLogger(__name__)


class Downgrade:
    def __init__(self, groups: ConsumerGroups, rebalancing: Rebalancing) -> None:
        self._groups = groups
        self._rebalancing = rebalancing

    def _allowed(self, group: ConsumerGroup, size: int) -> bool:
        if self._groups.config["group.consumer.migration.policy"].lower() not in ("bidirectional", "downgrade"):
            logger.info("group %s stays a consumer group: online downgrade is disabled", group.group_id)
            return False
        if size > self._groups.config["group.max.size"]:
            logger.info("group %s stays a consumer group: it is too large for a classic one", group.group_id)
            return False
        return True

    def without(self, effects: Effects, group: ConsumerGroup, gone: Mapping[str, Member]) -> bool:
        """Is everybody left a classic member when these are gone? Then the group becomes classic, without them."""
        left = [member for member in group.members.values() if member.member_id not in gone]
        if not left or any(member.classic is None for member in left) or not self._allowed(group, len(left)):
            return False
        self._write(effects, group, left)
        self._rebalance(effects, group.group_id, "members of the consumer protocol have left")
        return True

    def would_follow(self, group: ConsumerGroup, replaced: Member | None) -> bool:
        """Is this static member the last one of the new protocol?"""
        return (
            replaced is not None
            and replaced.classic is None
            and group.classic_count == len(group.members) - 1
            and self._allowed(group, len(group.members))
        )

    def now(self, effects: Effects, group: ConsumerGroup, rebalance: bool) -> None:
        self._write(effects, group, list(group.members.values()))
        if rebalance:
            self._rebalance(effects, group.group_id, "the assignment of the consumer group was stale")

    def _rebalance(self, effects: Effects, group_id: str, reason: str) -> None:
        group = self._rebalancing.find(group_id)
        if group is not None and group.can_rebalance:
            self._rebalancing.prepare(effects, group, reason)

    def _write(self, effects: Effects, group: ConsumerGroup, members: list[Member]) -> None:
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
        topics = self._groups.image.topics_by_id
        assignments = {}
        for each in classic.members.values():
            version = subscription_version(each.metadata(classic.protocol))
            target = group.target.get(each.member_id, {})
            named = {topics[topic_id].name: sorted(parts) for topic_id, parts in target.items() if topic_id in topics}
            assignments[each.member_id] = encode_assignment(named, version)
        group.write_tombstones(effects)
        # The record knows only the chosen protocol of each member; the group remembers the others.
        self._groups.groups[group_id] = classic
        effects.write(*classic.record(assignments))
        self._rebalancing.loaded(effects, classic)
        logger.info("group %s moves from the consumer to the classic protocol", group_id)
