"""A consumer group: what its records add up to.

Changed by replay alone: `update` and `remove` for members, and the setters beside them. What is derived from the
members (who subscribes to what, which partition has an owner) is kept up to date along the way. Replay is lenient about
the order of records, because compaction keeps only the last of each key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from pylogd.coordinators.groups.consumer.assignors.assignor import Assignment
from pylogd.coordinators.groups.consumer.member import Member, MemberState, Owned
from pylogd.coordinators.groups.group import CONSUMER
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages import group_records as records

if TYPE_CHECKING:
    from pylogd.coordinators.groups.commits import CommittedOffset
    from pylogd.coordinators.shard.effects import Effects

CONSUMER_PROTOCOL_TYPE = "consumer"
EMPTY = "Empty"
ASSIGNING = "Assigning"
RECONCILING = "Reconciling"
STABLE = "Stable"

_FIRST_EPOCH = 1
#: Topics are looked at when they change; this is for the case that nothing said so.
_REFRESH_MS = 0x7FFFFFFF
#: OffsetCommit knows member epochs from this version on.
_COMMIT_WITH_EPOCH = 9


class ResolvedRegex(NamedTuple):
    """The topics that a pattern matched, in the metadata of which offset, when."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class ConsumerGroup:
    kind = CONSUMER

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = _FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = _FIRST_EPOCH
        self.assignment_timestamp_ms = 0
        self.members: dict[str, Member] = {}
        #: instance id -> member id
        self.static: dict[str, str] = {}
        #: member id -> what it shall have
        self.target: dict[str, Assignment] = {}
        #: topic -> [members that name it, patterns that match it]
        self.subscribed: dict[str, list[int]] = {}
        #: pattern -> members with it
        self.regexes: dict[str, int] = {}
        self.resolved: dict[str, ResolvedRegex] = {}
        #: assignor -> members that prefer it
        self._assignors: dict[str, int] = {}
        #: topic id -> {partition: member epoch of its owner}
        self._owners: dict[bytes, dict[int, int]] = {}
        #: A record of a release before 4.1 is there and shall go.
        self.has_partition_metadata = False
        # Soft: lost with the coordinator.
        self.refresh_at_ms = 0
        self.refreshed_epoch = 0
        self.regex_refresh_pending = False
        #: Classic members that were told to join again, and have a limited time to. A dict as an ordered set.
        self.rejoining: dict[str, None] = {}

    # -- replay

    def update(self, member: Member) -> None:
        before = self.members.get(member.member_id)
        self.members[member.member_id] = member
        if before is not None:
            self._forget(before)
        for topic in member.topics:
            self.subscribed.setdefault(topic, [0, 0])[0] += 1
        if member.regex:
            self.regexes[member.regex] = self.regexes.get(member.regex, 0) + 1
        if member.assignor is not None:
            self._assignors[member.assignor] = self._assignors.get(member.assignor, 0) + 1
        for topic_id, index in _places(member):
            self._owners.setdefault(topic_id, {})[index] = member.member_epoch
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        self.rejoining.pop(member_id, None)
        if member is not None:
            self._forget(member)
            if member.instance_id is not None and self.static.get(member.instance_id) == member_id:
                del self.static[member.instance_id]

    def _forget(self, member: Member) -> None:
        for topic in member.topics:
            self._count_topic(topic, 0)
        if member.regex:
            _count_down(self.regexes, member.regex)
        if member.assignor is not None:
            _count_down(self._assignors, member.assignor)
        for topic_id, index in _places(member):
            owners = self._owners.get(topic_id)
            if owners is not None and owners.get(index) == member.member_epoch:
                del owners[index]
                if not owners:
                    del self._owners[topic_id]

    def _count_topic(self, topic: str, which: int) -> None:
        counts = self.subscribed.get(topic)
        if counts is not None:
            counts[which] -= 1
            if counts == [0, 0]:
                del self.subscribed[topic]

    def resolve(self, regex: str, resolved: ResolvedRegex | None) -> None:
        before = self.resolved.pop(regex, None)
        if before is not None:
            for topic in before.topics:
                self._count_topic(topic, 1)
        if resolved is not None:
            self.resolved[regex] = resolved
            for topic in resolved.topics:
                self.subscribed.setdefault(topic, [0, 0])[1] += 1

    # -- looking

    def member(self, member_id: str) -> Member:
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def static_member(self, instance_id: str | None) -> Member | None:
        member_id = None if instance_id is None else self.static.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def has_owner(self, topic_id: bytes, partition: int) -> bool:
        return partition in self._owners.get(topic_id, ())

    def topics_of(self, member: Member) -> tuple[str, ...]:
        """Names it subscribes to, those that its pattern has matched included."""
        resolved = self.resolved.get(member.regex) if member.regex else None
        if resolved is None or not resolved.topics:
            return member.topics
        return tuple(sorted(resolved.topics.union(member.topics)))

    @property
    def all_same(self) -> bool:
        """Do all members subscribe to the same topics, by name or by one pattern?"""
        size = len(self.members)
        if not self.regexes:
            return all(by_name == size for by_name, _ in self.subscribed.values())
        if next(iter(self.regexes.values())) != size:
            return False
        return all(by_name == 0 and by_regex == 1 for by_name, by_regex in self.subscribed.values())

    @property
    def preferred_assignor(self) -> str | None:
        """What most members prefer, None when nobody has said."""
        counts = self._assignors
        return max(counts, key=counts.__getitem__) if counts else None

    @property
    def classic_count(self) -> int:
        return sum(member.classic is not None for member in self.members.values())

    def supports_classic(self, protocol_type: str, names: list[str]) -> bool:
        """Could a classic member with these protocols be in the group?"""
        if protocol_type != CONSUMER_PROTOCOL_TYPE:
            return False
        if not self.members:
            return bool(names)
        classic = [member.classic for member in self.members.values() if member.classic is not None]
        sets = [{name for name, _ in metadata.protocols} for metadata in classic]
        return any(all(name in supported for supported in sets) for name in names)

    def waits_for_release(self, member: Member) -> bool:
        """Does somebody else still own a part of its target?"""
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        return any(
            index not in member.assigned.get(topic_id, ()) and self.has_owner(topic_id, index)
            for topic_id, indexes in self.target.get(member.member_id, {}).items()
            for index in indexes
        )

    def refreshed(self, now_ms: int) -> None:
        """Its topics have been looked at."""
        self.refresh_at_ms = now_ms + _REFRESH_MS
        self.refreshed_epoch = self.epoch

    def refresh_is_due(self, now_ms: int) -> bool:
        return now_ms >= self.refresh_at_ms or self.epoch < self.refreshed_epoch

    # -- as a Group

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state_name(self) -> str:
        if not self.members:
            return EMPTY
        if self.epoch > self.assignment_epoch:
            return ASSIGNING
        epoch = self.assignment_epoch
        return STABLE if all(each.is_reconciled_to(epoch) for each in self.members.values()) else RECONCILING

    @property
    def listed_protocol_type(self) -> str:
        return CONSUMER_PROTOCOL_TYPE

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, transactional: bool, version: int
    ) -> Callable[[str, bytes, int], None] | None:
        if generation < 0 and not self.members:
            return None
        if transactional and generation == -1 and not member_id and instance_id is None:
            return None
        member = self.member(member_id)
        if not transactional and member.classic is None and version < _COMMIT_WITH_EPOCH:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "OffsetCommit version 9 or above must be used by members using the consumer group protocol",
            )
        if generation == member.member_epoch:
            return None
        if generation > member.member_epoch:
            raise _stale(member, f"{generation} is newer than current member epoch {member.member_epoch}.")

        def check(topic: str, topic_id: bytes, partition: int) -> None:
            since = member.owns_since(topic_id, partition)
            where = f"partition {topic}-{partition}"
            if since is None:
                raise _stale(member, f"{generation} is old, and the member has not got {where}.")
            if generation < since:
                raise _stale(member, f"{generation} is older than assignment epoch {since} of {where}.")

        return check

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_id is None and member_epoch < 0:
            return
        member = self.member(member_id or "")
        if member_epoch != member.member_epoch:
            raise _stale(member, f"{member_epoch} does not match the expected member epoch {member.member_epoch}.")

    def check_offset_delete(self) -> None:
        """Always, of topics that are not subscribed."""

    def check_delete(self) -> None:
        if self.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscribed

    def expiration_base(self) -> Callable[[CommittedOffset], int] | None:
        return lambda offset: offset.value.commit_timestamp

    def write_tombstones(self, effects: Effects) -> None:
        group_id = self.group_id
        members = tuple(self.members)
        for member_id in members:
            self.cancel_timers(effects, member_id)
            effects.write(records.ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id), None)
        for member_id in members:
            effects.write(records.ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), None)
        effects.write(records.ConsumerGroupTargetAssignmentMetadataKey(group_id), None)
        for member_id in members:
            effects.write(records.ConsumerGroupMemberMetadataKey(group_id, member_id), None)
        for regex in tuple(self.resolved):
            effects.write(records.ConsumerGroupRegularExpressionKey(group_id, regex), None)
        effects.write(records.ConsumerGroupPartitionMetadataKey(group_id), None)
        effects.write(records.ConsumerGroupMetadataKey(group_id), None)

    def cancel_timers(self, effects: Effects, member_id: str) -> None:
        for what in ("session", "rebalance", "rejoin", "resync"):
            effects.cancel((what, self.group_id, member_id))
        self.rejoining.pop(member_id, None)


def _places(member: Member) -> Iterator[tuple[bytes, int]]:
    owned: Owned
    for owned in (member.assigned, member.revoking):
        for topic_id, indexes in owned.items():
            for index in indexes:
                yield topic_id, index


def _count_down(counts: dict[str, int], key: str) -> None:
    left = counts.get(key, 1) - 1
    if left:
        counts[key] = left
    else:
        counts.pop(key, None)


def _stale(member: Member, what: str) -> KafkaError:
    if member.classic is not None:
        return KafkaError(ErrorCode.ILLEGAL_GENERATION, f"The received generation id {what}")
    return KafkaError(ErrorCode.STALE_MEMBER_EPOCH, f"The received member epoch {what}")
