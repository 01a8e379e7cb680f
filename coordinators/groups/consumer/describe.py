"""Consumer groups as ConsumerGroupDescribe shows them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from pylogd.coordinators.groups.consumer.consumer_group import ConsumerGroup
from pylogd.coordinators.groups.consumer.member import Member
from pylogd.protocol.messages import consumer_group_describe as messages

if TYPE_CHECKING:
    from pylogd.metadata.image import ClusterImage

_CLASSIC_MEMBER = 0
_CONSUMER_MEMBER = 1


def describe(group: ConsumerGroup, default_assignor: str, image: ClusterImage) -> messages.DescribedGroup:
    return messages.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor or default_assignor,
        members=[_member(group, member, image) for member in group.members.values()],
    )


def _member(group: ConsumerGroup, member: Member, image: ClusterImage) -> messages.Member:
    # What it is giving up is still its own.
    return messages.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_assignment([member.assigned, member.revoking], image),
        target_assignment=_assignment([group.target.get(member.member_id, {})], image),
        member_type=_CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    )


def _assignment(parts: Iterable[Mapping[bytes, Collection[int]]], image: ClusterImage) -> messages.Assignment:
    found: dict[bytes, list[int]] = {}
    for part in parts:
        for topic_id, indexes in part.items():
            if topic_id in image.topics_by_id:
                found.setdefault(topic_id, []).extend(indexes)
    return messages.Assignment(
        [
            messages.TopicPartitions(topic_id, image.topics_by_id[topic_id].name, sorted(indexes))
            for topic_id, indexes in found.items()
        ]
    )
