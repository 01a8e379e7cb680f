"""One step of a member towards its target assignment.

    STABLE -> UNREVOKED_PARTITIONS      the target has not all that it has: it must give up the rest first, in its epoch
    UNREVOKED_PARTITIONS -> next epoch  it no longer reports what it had to give up
    next epoch: STABLE, or UNRELEASED_PARTITIONS while somebody else owns a part of the target
    UNRELEASED_PARTITIONS -> STABLE     that part was given up by its owner, or is no longer in the target

What a member is given it owns from that moment on, before it knows: no two members ever own a partition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from pylogd.coordinators.groups.consumer.assignors.assignor import Assignment
from pylogd.coordinators.groups.consumer.member import Member, MemberState
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages.consumer_group_heartbeat import TopicPartitions

#: topic id -> partitions that the member says it has; None when it did not say
Reported = Mapping[bytes, Collection[int]] | None


def reported(topics: list[TopicPartitions] | None) -> Reported:
    if topics is None:
        return None
    found: dict[bytes, list[int]] = {}
    for topic in topics:
        found.setdefault(bytes(topic.topic_id), []).extend(topic.partitions)
    return found


def reconcile(
    member: Member,
    target_epoch: int,
    target: Assignment,
    subscribed: Collection[bytes],
    subscription_changed: bool,
    has_owner: Callable[[bytes, int], bool],
    owned: Reported,
) -> Member:
    """The member after its next step; itself when there is none."""
    if member.state is MemberState.STABLE and member.member_epoch == target_epoch:
        return _drop_unsubscribed(member, subscribed, owned) if subscription_changed else member
    if member.state is MemberState.UNREVOKED_PARTITIONS and _still_has(member.revoking, owned):
        return _drop_unsubscribed(member, subscribed, owned) if subscription_changed else member
    if member.state is MemberState.UNKNOWN:
        check_known_state(member, owned)
    return _advance(member, target_epoch, target, subscribed, has_owner, owned)


def check_known_state(member: Member, owned: Reported) -> None:
    """A state of a newer release is left by starting over."""
    if member.state is MemberState.UNKNOWN and (owned is None or owned):
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin.",
        )


def _still_has(pending: Mapping[bytes, Collection[int]], owned: Reported) -> bool:
    if owned is None:
        return True
    return any(index in pending.get(topic_id, ()) for topic_id, indexes in owned.items() for index in indexes)


def _drop_unsubscribed(member: Member, subscribed: Collection[bytes], owned: Reported) -> Member:
    """Partitions of topics to which it no longer subscribes must go, whatever the target says."""
    gone = {topic_id: epochs for topic_id, epochs in member.assigned.items() if topic_id not in subscribed}
    if not gone:
        return member
    assigned = {topic_id: epochs for topic_id, epochs in member.assigned.items() if topic_id in subscribed}
    revoking = {topic_id: dict(epochs) for topic_id, epochs in member.revoking.items()}
    for topic_id, epochs in gone.items():
        revoking.setdefault(topic_id, {}).update(epochs)
    if _still_has(revoking, owned):
        state = MemberState.UNREVOKED_PARTITIONS
        return member.at_epoch(member.member_epoch, state=state, assigned=assigned, revoking=revoking)
    return member.at_epoch(member.member_epoch, assigned=assigned)


def _advance(
    member: Member,
    target_epoch: int,
    target: Assignment,
    subscribed: Collection[bytes],
    has_owner: Callable[[bytes, int], bool],
    owned: Reported,
) -> Member:
    kept: dict[bytes, dict[int, int]] = {}
    revoking: dict[bytes, dict[int, int]] = {}
    added: dict[bytes, list[int]] = {}
    unreleased = False
    for topic_id in {**member.assigned, **target}:
        wanted = target.get(topic_id, ()) if topic_id in subscribed else ()
        present = member.assigned.get(topic_id, {})
        keep = {index: epoch for index, epoch in present.items() if index in wanted}
        give_up = {index: epoch for index, epoch in present.items() if index not in wanted}
        if keep:
            kept[topic_id] = keep
        if give_up:
            revoking[topic_id] = give_up
        mine = member.revoking.get(topic_id, {})
        for index in sorted(wanted):
            if index in keep:
                continue
            # What it is still giving up has an owner: itself.
            if has_owner(topic_id, index) and index not in mine:
                unreleased = True
            else:
                added.setdefault(topic_id, []).append(index)
    if revoking and _still_has(revoking, owned):
        state = MemberState.UNREVOKED_PARTITIONS
        return member.at_epoch(member.member_epoch, state=state, assigned=kept, revoking=revoking)
    for topic_id, indexes in added.items():
        kept.setdefault(topic_id, {}).update(dict.fromkeys(indexes, target_epoch))
    state = MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE
    return member.at_epoch(target_epoch, state=state, assigned=kept, revoking={})
