"""A member of a consumer group: a value, replaced whole when it changes.

Two records make it: ConsumerGroupMemberMetadata says who it is and what it wants, ConsumerGroupCurrentMemberAssignment
how far it has come. Each partition it has carries the epoch at which it was assigned: a commit with an older member
epoch still counts for a partition that the member has had since then (KIP-1251).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from pylogd.protocol.messages import group_records as records

#: topic id -> {partition: epoch of its assignment}
Owned = Mapping[bytes, Mapping[int, int]]

#: Member epochs with a meaning of their own, in requests and in records.
JOINING = 0
LEAVING = -1
#: A static member leaves for a while: its place is kept until its session ends.
LEAVING_STATIC = -2


class MemberState(IntEnum):
    STABLE = 0
    #: It has to give up partitions before it can follow the group to its next epoch.
    UNREVOKED_PARTITIONS = 1
    #: It is in the group's epoch, but partitions meant for it have another owner yet.
    UNRELEASED_PARTITIONS = 2
    #: Written by a newer release.
    UNKNOWN = 127


class ClassicMetadata(NamedTuple):
    """What a member of the classic protocol said when it joined; protocols in the order of its preference."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class Member(NamedTuple):
    member_id: str
    member_epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    #: Sorted, without repetition.
    topics: tuple[str, ...] = ()
    regex: str | None = ""
    assignor: str | None = None
    assigned: Owned = {}
    revoking: Owned = {}
    #: None: it speaks the consumer protocol.
    classic: ClassicMetadata | None = None

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == epoch

    def at_epoch(self, epoch: int, **changes: Any) -> Member:
        """In another epoch, which may be the same again."""
        return self._replace(member_epoch=epoch, previous_epoch=self.member_epoch, **changes)

    def owns_since(self, topic_id: bytes, partition: int) -> int | None:
        """The epoch of a partition that it has, or is about to give up."""
        since = self.assigned.get(topic_id, {}).get(partition)
        return self.revoking.get(topic_id, {}).get(partition) if since is None else since

    # -- records

    def subscription_record(
        self, group_id: str
    ) -> tuple[records.ConsumerGroupMemberMetadataKey, records.ConsumerGroupMemberMetadataValue]:
        classic = None
        if self.classic is not None:
            classic = records.ClassicMemberMetadata(
                session_timeout_ms=self.classic.session_timeout_ms,
                supported_protocols=[records.ClassicProtocol(*each) for each in self.classic.protocols],
            )
        value = records.ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=list(self.topics),
            subscribed_topic_regex=self.regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.assignor,
            classic_member_metadata=classic,
        )
        return records.ConsumerGroupMemberMetadataKey(group_id, self.member_id), value

    def assignment_record(
        self, group_id: str
    ) -> tuple[records.ConsumerGroupCurrentMemberAssignmentKey, records.ConsumerGroupCurrentMemberAssignmentValue]:
        value = records.ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.member_epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            assigned_partitions=_owned_to_record(self.assigned),
            partitions_pending_revocation=_owned_to_record(self.revoking),
        )
        return records.ConsumerGroupCurrentMemberAssignmentKey(group_id, self.member_id), value

    def with_subscription(self, value: records.ConsumerGroupMemberMetadataValue) -> Member:
        classic = value.classic_member_metadata
        return self._replace(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=topic_names(value.subscribed_topic_names),
            regex=value.subscribed_topic_regex,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            assignor=value.server_assignor,
            classic=None
            if classic is None
            else ClassicMetadata(
                classic.session_timeout_ms,
                tuple((each.name, bytes(each.metadata)) for each in classic.supported_protocols),
            ),
        )

    def with_assignment(self, value: records.ConsumerGroupCurrentMemberAssignmentValue) -> Member:
        known = value.state in _STATES
        return self._replace(
            member_epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state) if known else MemberState.UNKNOWN,
            assigned=_owned_from_record(value.assigned_partitions, value.member_epoch),
            revoking=_owned_from_record(value.partitions_pending_revocation, value.member_epoch),
        )

    def without_assignment(self) -> Member:
        """Its assignment's tombstone was replayed: the next record deletes the member itself."""
        return self._replace(member_epoch=LEAVING, previous_epoch=LEAVING, assigned={}, revoking={})


_STATES = frozenset(MemberState)


def topic_names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))


def _owned_to_record(owned: Owned) -> list[records.ConsumerTopicPartitions]:
    return [
        records.ConsumerTopicPartitions(topic_id, list(epochs), list(epochs.values()))
        for topic_id, epochs in owned.items()
    ]


def _owned_from_record(topics: list[records.ConsumerTopicPartitions], member_epoch: int) -> dict[bytes, dict[int, int]]:
    """Releases before 4.3 wrote no epochs: then the member's own is meant."""
    owned = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if not epochs or len(epochs) != len(topic.partitions):
            epochs = [max(member_epoch, 0)] * len(topic.partitions)
        owned[bytes(topic.topic_id)] = dict(zip(topic.partitions, epochs, strict=True))
    return owned
