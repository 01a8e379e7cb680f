"""Who shall have what: the target assignment of a group, made anew for each of its epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pylogd.coordinators.groups.consumer.assignors.assignor import Assignment, GroupSpec, MemberSpec
from pylogd.coordinators.groups.consumer.assignors.java_order import name_order
from pylogd.coordinators.groups.consumer.assignors.offered import offered_assignors
from pylogd.coordinators.groups.consumer.consumer_group import ConsumerGroup
from pylogd.coordinators.groups.consumer.group_settings import ASSIGNMENT_INTERVAL_MS
from pylogd.coordinators.groups.consumer.subscribed_topics import subscribed_ids
from pylogd.protocol.messages import group_records as records

if TYPE_CHECKING:
    from pylogd.coordinators.groups.consumer.consumer_groups import ConsumerGroups
    from pylogd.coordinators.shard.effects import Effects

#: The assignment of a larger group may not fit into one batch.
_ONE_BATCH_MEMBERS_MAX = 2000


class Assigning:
    def __init__(self, groups: ConsumerGroups) -> None:
        self._groups = groups
        self.offered = offered_assignors(groups.config["group.consumer.assignors"])
        self.default = next(iter(self.offered))

    def update(self, effects: Effects, group: ConsumerGroup) -> None:
        """Assign anew when the group is in a new epoch, but not twice in a short time."""
        if group.assignment_epoch >= group.epoch:
            return
        interval_ms = self._groups.settings.of_group(group.group_id, ASSIGNMENT_INTERVAL_MS)
        last_ms = group.assignment_timestamp_ms
        if last_ms and interval_ms and effects.now_ms < last_ms + interval_ms:
            # Not left to the next heartbeat: members of the classic protocol have none that would do it.
            group_id = group.group_id
            delay_ms = last_ms + interval_ms - effects.now_ms
            effects.after(("assign", group_id), delay_ms, lambda later: self._late(later, group_id))
            return
        if len(group.members) > _ONE_BATCH_MEMBERS_MAX:
            # The epoch comes last: an assignment of which a crash leaves a part is made again.
            effects.atomic = False
        assign = self.offered.get(group.preferred_assignor or "", self.offered[self.default])
        result = assign(self._spec(group))
        for member_id in group.members:
            target = result.get(member_id, {})
            if group.target.get(member_id) != target:
                self.write(effects, group.group_id, member_id, target)
        effects.write(
            records.ConsumerGroupTargetAssignmentMetadataKey(group.group_id),
            records.ConsumerGroupTargetAssignmentMetadataValue(
                assignment_epoch=group.epoch, assignment_timestamp=effects.now_ms
            ),
        )

    def _late(self, effects: Effects, group_id: str) -> None:
        group = self._groups.get(group_id)
        if group is not None and group.members:
            self.update(effects, group)

    def _spec(self, group: ConsumerGroup) -> GroupSpec:
        image = self._groups.image
        known: dict[tuple[tuple[str, ...], str | None], tuple[tuple[bytes, ...], int]] = {}
        members = {}
        partitions: dict[bytes, int] = {}
        for member_id, member in group.members.items():
            wish = (member.topics, member.regex)
            found = known.get(wish)
            if found is None:
                names = name_order(group.topics_of(member))
                ids = subscribed_ids(image, names)
                partitions.update((topic_id, len(image.topics_by_id[topic_id].partitions)) for topic_id in ids)
                found = known[wish] = ids, len(names)
            members[member_id] = MemberSpec(member.instance_id, found[0], group.target.get(member_id, {}), found[1])
        return GroupSpec(members, group.all_same, partitions)

    def write(self, effects: Effects, group_id: str, member_id: str, target: Assignment) -> None:
        effects.write(
            records.ConsumerGroupTargetAssignmentMemberKey(group_id, member_id),
            records.ConsumerGroupTargetAssignmentMemberValue(
                [records.TopicPartition(topic_id, sorted(indexes)) for topic_id, indexes in target.items()]
            ),
        )
