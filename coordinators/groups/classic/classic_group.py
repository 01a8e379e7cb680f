"""A group of the classic protocol: members, generation, and where it stands in a rebalance.

Durable is what the last GroupMetadata record says (`restore`): generation, protocol, leader, members and their
assignments. Soft is what a rebalance builds on top of it, and what is lost with the coordinator: who has joined again,
whose requests are parked, the next generation until its assignment is written.

    Empty -> PreparingRebalance      a member joins
    PreparingRebalance -> CompletingRebalance    all have joined, or the time is up; the next generation begins
    PreparingRebalance -> Empty      nobody is left
    CompletingRebalance -> Stable    the leader's assignment is written
    CompletingRebalance, Stable -> PreparingRebalance    a member joins, leaves, fails, or changes its metadata
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING

from pylogd.coordinators.groups.group import CLASSIC
from pylogd.coordinators.shard.key_placement import hash_map_order
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages import group_records as records

if TYPE_CHECKING:
    from pylogd.coordinators.groups.commits import CommittedOffset
    from pylogd.coordinators.shard.effects import Effects, Reply

CONSUMER_PROTOCOL_TYPE = "consumer"
GROUP_METADATA_VERSION = 3
#: (name, metadata) in the order of the member's preference
Protocols = list[tuple[str, bytes]]
#: Key, value and the value's version.
GroupRecord = tuple[records.GroupMetadataKey, records.GroupMetadataValue, int]

_INT16 = Struct(">h").unpack_from
_INT32 = Struct(">i").unpack_from


class State(StrEnum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Member:
    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        #: Its first JoinGroup is parked: it cannot send heartbeats yet.
        self.is_new = False

    def metadata(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{self.member_id} does not support {protocol}")

    def vote(self, candidates: set[str]) -> str:
        return next(name for name, _ in self.protocols if name in candidates)


class ClassicGroup:
    kind = CLASSIC

    def __init__(self, group_id: str, now_ms: int) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.previous_state = State.DEAD
        #: When the state was entered; -1 in records of old versions.
        self.state_timestamp_ms = now_ms
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.generation = 0
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        #: instance id -> member id
        self.static: dict[str, str] = {}
        #: New members that were told their id and have not joined with it. Dicts as ordered sets.
        self.pending_join: dict[str, None] = {}
        self.pending_sync: dict[str, None] = {}
        #: Parked requests by member.
        self.awaiting_join: dict[str, Reply] = {}
        self.awaiting_sync: dict[str, Reply] = {}
        self._support: dict[str, int] = {}
        #: None: not a consumer group, or its metadata cannot be read.
        self.subscribed_topics: set[str] | None = None
        self.new_member_added = False

    # -- durable state

    def record(self, assignments: dict[str, bytes], now_ms: int | None = None) -> GroupRecord:
        """The group as it is, for `Effects.write`."""
        members = [
            records.MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(self.protocol),
                assignment=assignments[member.member_id],
            )
            for member in self.members.values()
        ]
        value = records.GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            current_state_timestamp=self.state_timestamp_ms if now_ms is None else now_ms,
            members=members,
        )
        return records.GroupMetadataKey(group=self.group_id), value, GROUP_METADATA_VERSION

    def restore(self, value: records.GroupMetadataValue) -> None:
        """Become what a record says. A live member keeps its protocols: the record has only the chosen one."""
        known, self.members, self.static, self._support = self.members, {}, {}, {}
        self.protocol_type = value.protocol_type or None
        self.protocol = value.protocol
        self.generation = value.generation
        self.leader = value.leader
        for stored in value.members:
            timeout_ms = stored.rebalance_timeout
            member = Member(
                stored.member_id,
                stored.group_instance_id,
                stored.client_id,
                stored.client_host,
                stored.session_timeout if timeout_ms == -1 else timeout_ms,
                stored.session_timeout,
                # Only a group without members has no protocol.
                [(value.protocol, bytes(stored.subscription))],  # type: ignore[list-item]
                bytes(stored.assignment),
            )
            before = known.get(member.member_id)
            if before is not None:
                member.protocols = before.protocols
                member.is_new = before.is_new
            self.insert(member)
        self.previous_state = self.state
        self.state = State.STABLE if self.members else State.EMPTY
        self.state_timestamp_ms = value.current_state_timestamp
        self.subscribed_topics = self._read_subscriptions()

    # -- members

    def insert(self, member: Member) -> None:
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self._count(member.protocols, 1)

    def _count(self, protocols: Protocols, by: int) -> None:
        support = self._support
        for name in dict.fromkeys(name for name, _ in protocols):
            support[name] = support.get(name, 0) + by

    def add(self, member: Member, protocol_type: str, reply: Reply) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        self.insert(member)
        self.pending_join.pop(member.member_id, None)
        self.awaiting_join[member.member_id] = reply

    def update(self, member: Member, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int) -> None:
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member.protocols, -1)
            if member.instance_id is not None:
                self.static.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_join.pop(member_id, None)
        self.pending_sync.pop(member_id, None)
        self.awaiting_join.pop(member_id, None)
        self.awaiting_sync.pop(member_id, None)

    def replace_static(self, instance_id: str, old_id: str, new_id: str) -> Member:
        """The same static member under a new id; its parked requests are the caller's to answer first."""
        member = self.members.pop(old_id)
        self.awaiting_join.pop(old_id, None)
        self.awaiting_sync.pop(old_id, None)
        self.pending_sync.pop(old_id, None)
        member.member_id = new_id
        member.is_new = False
        self.members[new_id] = member
        self.static[instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        return member

    def check_member(self, member_id: str, instance_id: str | None) -> None:
        if instance_id is not None:
            existing = self.static.get(instance_id)
            if existing is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if existing != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        if member_id not in self.members:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    @property
    def all_joined(self) -> bool:
        return len(self.awaiting_join) == len(self.members) and not self.pending_join

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # -- protocols

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Could a member with these protocols be in the group?"""
        if self.state is State.EMPTY:
            return bool(protocol_type) and any(True for _ in names)
        count = len(self.members)
        return self.protocol_type == protocol_type and any(self._support.get(name, 0) == count for name in names)

    def select_protocol(self) -> str:
        """Of the protocols that all support, the one that most members prefer."""
        count = len(self.members)
        candidates = {name for name, support in self._support.items() if support == count}
        votes: dict[str, int] = {}
        for member in self.members.values():
            name = member.vote(candidates)
            votes[name] = votes.get(name, 0) + 1
        return max(hash_map_order(list(votes)), key=votes.__getitem__)

    def _read_subscriptions(self) -> set[str] | None:
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        if not self.members:
            return set()
        if self.protocol is None:
            return None
        topics: set[str] = set()
        try:
            for member in self.members.values():
                topics.update(_subscribed_topics(member.metadata(self.protocol)))
        except (StructError, UnicodeDecodeError, KafkaError):
            return None
        return topics

    # -- transitions

    def transition(self, state: State, now_ms: int) -> None:
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now_ms

    @property
    def can_rebalance(self) -> bool:
        return self.state in (State.EMPTY, State.STABLE, State.COMPLETING_REBALANCE)

    @property
    def is_rebalancing(self) -> bool:
        return self.state in (State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE)

    def elect_joined_leader(self) -> bool:
        """A leader that has not joined again is replaced by one that has; False when there is none."""
        if self.leader is None:
            return False
        if self.leader in self.awaiting_join:
            return True
        joined = next((member_id for member_id in self.members if member_id in self.awaiting_join), None)
        if joined is None:
            return False
        self.leader = joined
        return True

    def next_generation(self, now_ms: int) -> None:
        self.generation += 1
        self.protocol = self.select_protocol()
        self.subscribed_topics = self._read_subscriptions()
        self.transition(State.COMPLETING_REBALANCE, now_ms)
        self.pending_sync.clear()

    # -- as a Group

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def listed_protocol_type(self) -> str:
        return self.protocol_type or ""

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, transactional: bool, version: int
    ) -> None:
        if generation < 0 and self.is_empty:
            return  # an admin client, or a consumer that assigns itself
        if generation >= 0 or member_id or instance_id is not None:
            self.check_member(member_id, instance_id)
            if generation != self.generation:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        elif not transactional and not self.is_empty:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if not transactional and self.state is State.COMPLETING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Anybody may."""

    def check_offset_delete(self) -> None:
        if not self.is_empty and self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def check_delete(self) -> None:
        if not self.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def is_subscribed_to(self, topic: str) -> bool:
        if self.subscribed_topics is not None:
            return topic in self.subscribed_topics
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def expiration_base(self) -> Callable[[CommittedOffset], int] | None:
        if self.protocol_type is None:
            return lambda offset: offset.value.commit_timestamp
        if self.is_empty:
            since_ms = self.state_timestamp_ms
            return lambda offset: offset.value.commit_timestamp if since_ms == -1 else since_ms
        known = self.protocol_type == CONSUMER_PROTOCOL_TYPE and self.subscribed_topics is not None
        if known and self.state is State.STABLE:
            return lambda offset: offset.value.commit_timestamp
        return None

    def write_tombstones(self, effects: Effects) -> None:
        for member_id in (*self.members, *self.pending_join):
            effects.cancel(("heartbeat", self.group_id, member_id))
        effects.write(records.GroupMetadataKey(group=self.group_id), None)


def _subscribed_topics(metadata: bytes) -> list[str]:
    """Topics of a consumer's subscription. Every version of it starts like version 0: version int16, topics as an
    array of strings, user data."""
    (count,) = _INT32(metadata, 2)
    if count < 0:
        raise StructError("negative array length")
    position = 6
    topics = []
    for _ in range(count):
        (size,) = _INT16(metadata, position)
        position += 2
        if size < 0 or position + size > len(metadata):
            raise StructError("truncated string")
        topics.append(metadata[position : position + size].decode())
        position += size
    return topics
