"""The state of one partition of `__consumer_offsets`: its groups, whatever their protocol, and their offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from pylogd.config.values import Values
from pylogd.coordinators.groups.classic.classic_group import ClassicGroup, State
from pylogd.coordinators.groups.classic.classic_protocol import ClassicProtocol
from pylogd.coordinators.groups.classic.rebalancing import Rebalancing
from pylogd.coordinators.groups.commits import Commit, CommittedOffset
from pylogd.coordinators.groups.consumer.consumer_group import ConsumerGroup
from pylogd.coordinators.groups.consumer.consumer_protocol import ConsumerProtocol
from pylogd.coordinators.groups.consumer.describe import describe
from pylogd.coordinators.groups.consumer.group_replay import CONSUMER_RECORDS, ConsumerKey, replay_consumer
from pylogd.coordinators.groups.consumer.migration.classic_members import ClassicMembers
from pylogd.coordinators.groups.group import UNKNOWN_MEMBER, Caller, Group
from pylogd.coordinators.groups.offsets import Offsets
from pylogd.coordinators.shard.effects import Effects, Reply, Resolvable, WriteRefused
from pylogd.coordinators.shard.record_pairs import CoordinatorRecord, RecordClasses
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages import consumer_group_describe
from pylogd.protocol.messages import group_records as records
from pylogd.protocol.messages.delete_groups import DeletableGroupResult
from pylogd.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from pylogd.protocol.messages.group_records import OffsetCommitKey
from pylogd.protocol.messages.heartbeat import HeartbeatRequest
from pylogd.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from pylogd.protocol.messages.leave_group import LeaveGroupRequest
from pylogd.protocol.messages.list_groups import ListedGroup
from pylogd.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from pylogd.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from pylogd.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from pylogd.protocol.messages.sync_group import SyncGroupRequest
from pylogd.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from pylogd.protocol.uuids import ZERO

if TYPE_CHECKING:
    from pylogd.metadata.delta import ImageDelta
    from pylogd.metadata.image import ClusterImage
    from pylogd.metadata.latest import LatestImage

NO_OFFSET = -1


class GroupState:
    """`config` gives the broker's settings by name, `new_id()` the random part of a member id."""

    classes: RecordClasses = {
        0: (records.LegacyOffsetCommitKey, records.LegacyOffsetCommitValue),
        1: (OffsetCommitKey, records.OffsetCommitValue),
        2: (records.GroupMetadataKey, records.GroupMetadataValue),
        **CONSUMER_RECORDS,
    }

    def __init__(self, config: Values, new_id: Callable[[], str], metadata: LatestImage) -> None:
        self.config = config
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()
        self.rebalancing = Rebalancing(self.groups, config)
        self.classic = ClassicProtocol(self.groups, self.rebalancing, config, new_id)
        self.consumer = ConsumerProtocol(self.groups, self.rebalancing, config, metadata, new_id)
        self.classic_members = ClassicMembers(self.consumer)

    # -- replay

    def replay(self, record: CoordinatorRecord, offset: int, producer_id: int) -> None:
        key = record.key
        #: Of the class that belongs to the key's.
        value: Any = record.value
        if isinstance(key, OffsetCommitKey):
            if value is not None and key.group not in self.groups:
                # Somebody who only stores offsets: a group without members and without a protocol.
                self.groups[key.group] = ClassicGroup(key.group, value.commit_timestamp)
            self.offsets.replay(key, value, offset, producer_id)
        elif isinstance(key, records.LegacyOffsetCommitKey):
            self.replay(_commit_of_today(key, value), offset, producer_id)
        elif isinstance(key, records.GroupMetadataKey):
            self.classic.replay(key, value)
        elif isinstance(key, ConsumerKey):
            replay_consumer(self.groups, key, value)

    def replay_end_transaction(self, producer_id: int, committed: bool) -> None:
        self.offsets.replay_end_transaction(producer_id, committed)

    # -- life of the shard

    def loaded(self, effects: Effects) -> None:
        for group in tuple(self.groups.values()):
            if isinstance(group, ClassicGroup):
                self.rebalancing.loaded(effects, group)
            elif isinstance(group, ConsumerGroup):
                self.consumer.loaded(effects, group)
        self._schedule_expiry(effects)

    def metadata_changed(self, effects: Effects, delta: ImageDelta, image: ClusterImage) -> None:
        if delta.deleted_topics:
            effects.atomic = False
            gone = {topic.name: topic.id for topic in delta.deleted_topics.values()}
            self.offsets.topics_deleted(effects, gone)
        self.consumer.metadata_changed(effects, delta, image)

    def _schedule_expiry(self, effects: Effects) -> None:
        effects.after("expiry", self.config["offsets.retention.check.interval.ms"], self.expire)

    def expire(self, effects: Effects) -> None:
        """Old offsets go, and with the last of them groups without members."""
        effects.atomic = False
        retention_ms = self.config["offsets.retention.minutes"] * 60_000
        for group in tuple(self.groups.values()):
            if self.offsets.expire(effects, group, retention_ms) and group.is_empty:
                group.write_tombstones(effects)
        self._schedule_expiry(effects)

    # -- membership

    def join(self, effects: Effects, reply: Reply, request: JoinGroupRequest, caller: Caller) -> None:
        group = self._consumer_group(request.group_id)
        if group is not None and not group.is_empty:
            try:
                self.classic_members.join(effects, reply, group, request, caller)
            except KafkaError as refusal:
                if effects.records or isinstance(refusal, WriteRefused):
                    raise
                effects.answer(reply, JoinGroupResponse(error_code=refusal.code, member_id=request.member_id))
            return
        if group is not None and request.member_id == UNKNOWN_MEMBER:
            group.write_tombstones(effects)  # nobody is left in it: it becomes a classic one
        self.classic.join(effects, reply, request, caller)

    def sync(self, effects: Effects, reply: Reply, request: SyncGroupRequest) -> None:
        group = self._consumer_group(request.group_id)
        if group is not None:
            self.classic_members.sync(effects, reply, group, request)
        else:
            self.classic.sync(effects, reply, request)

    def heartbeat(self, effects: Effects, reply: Reply, request: HeartbeatRequest) -> None:
        group = self._consumer_group(request.group_id)
        if group is not None:
            self.classic_members.heartbeat(effects, reply, group, request)
        else:
            self.classic.heartbeat(effects, reply, request)

    def leave(self, effects: Effects, reply: Reply, request: LeaveGroupRequest) -> None:
        group = self._consumer_group(request.group_id)
        if group is not None:
            self.classic_members.leave(effects, reply, group, request)
        else:
            self.classic.leave(effects, reply, request)

    def _consumer_group(self, group_id: str) -> ConsumerGroup | None:
        group = self.groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    # -- offsets

    def find(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def commit(
        self,
        effects: Effects,
        reply: Resolvable,
        request: OffsetCommitRequest,
        version: int,
        commits: list[Commit],
        response: OffsetCommitResponse | None,
    ) -> None:
        """`commits` are those of the request's partitions that exist; each has its place in `response`."""
        group_id = request.group_id
        generation = request.generation_id_or_member_epoch
        group = self.groups.get(group_id)
        if group is not None:
            check = group.check_offset_commit(
                request.member_id, request.group_instance_id, generation, transactional=False, version=version
            )
            if check is not None:
                _check_each(check, commits)
            if isinstance(group, ClassicGroup) and group.members:
                self.classic.committed(effects, group, request.member_id)
        elif generation >= 0:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION)
        retention_ms = request.retention_time_ms if version <= 4 else -1
        self._commit_all(effects, commits, retention_ms)
        effects.answer(reply, response)

    def commit_in_transaction(
        self,
        effects: Effects,
        reply: Reply,
        request: TxnOffsetCommitRequest,
        version: int,
        commits: list[Commit],
        response: TxnOffsetCommitResponse,
    ) -> None:
        """Like `commit`; the event runs for a producer, so what it writes is pending until the transaction ends."""
        group = self.groups.get(request.group_id)
        if group is not None:
            try:
                check = group.check_offset_commit(
                    request.member_id,
                    request.group_instance_id,
                    request.generation_id,
                    transactional=True,
                    version=version,
                )
                if check is not None:
                    _check_each(check, commits)
            except KafkaError as refusal:
                if refusal.code is ErrorCode.STALE_MEMBER_EPOCH:
                    raise KafkaError(ErrorCode.ILLEGAL_GENERATION) from None
                raise
        elif request.generation_id >= 0:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        self._commit_all(effects, commits, -1)
        effects.answer(reply, response)

    def _commit_all(self, effects: Effects, commits: list[Commit], retention_ms: int) -> None:
        accepted = commits
        for commit in commits:
            metadata = commit.partition.committed_metadata
            if metadata and _utf16_units(metadata) > self.config["offset.metadata.max.bytes"]:
                commit.answer.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                accepted = [each for each in accepted if each is not commit]
        self.offsets.commit(effects, accepted, retention_ms)

    def fetch(self, effects: Effects, reply: Reply, request: OffsetFetchRequestGroup, require_stable: bool) -> None:
        """Offsets of one group; null topics are all it has."""
        group_id = request.group_id
        group = self.groups.get(group_id)
        if group is not None:
            group.check_offset_fetch(request.member_id, request.member_epoch)
        known = {} if group is None else self.offsets.by_group.get(group_id, {})
        wanted: list[tuple[str, bytes, Iterable[int]]]
        if request.topics is None:
            wanted = [(topic, ZERO, offsets) for topic, offsets in known.items()]
        else:
            wanted = [(topic.name, topic.topic_id, topic.partition_indexes) for topic in request.topics]
        topics = []
        for name, topic_id, indexes in wanted:
            offsets = known.get(name, {})
            found = []
            for index in indexes:
                if require_stable and self.offsets.is_pending(group_id, name, index):
                    unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
                    found.append(OffsetFetchResponsePartitions(index, NO_OFFSET, error_code=unstable))
                else:
                    found.append(_fetched(index, offsets.get(index), topic_id))
            topics.append(OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=found))
        effects.answer(reply, OffsetFetchResponseGroup(group_id=group_id, topics=topics))

    def delete_offsets(
        self, effects: Effects, reply: Reply, request: OffsetDeleteRequest, response: OffsetDeleteResponse
    ) -> None:
        """`request` names only partitions that exist; what does not is in `response` already."""
        group = self.find(request.group_id)
        group.check_offset_delete()
        doomed = []
        for topic in request.topics:
            subscribed = group.is_subscribed_to(topic.name)
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
            answers = []
            for partition in topic.partitions:
                if not subscribed:
                    doomed.append((topic.name, partition.partition_index))
                answers.append(OffsetDeleteResponsePartition(partition.partition_index, code))
            present = next((each for each in response.topics if each.name == topic.name), None)
            if present is None:
                response.topics.append(OffsetDeleteResponseTopic(topic.name, answers))
            else:
                present.partitions += answers
        self.offsets.delete(effects, request.group_id, *doomed)
        effects.answer(reply, response)

    # -- administration

    def delete(self, effects: Effects, reply: Reply, group_ids: Iterable[str]) -> None:
        effects.atomic = False
        results = []
        for group_id in group_ids:
            code = ErrorCode.NONE
            try:
                group = self.find(group_id)
                group.check_delete()
            except KafkaError as refusal:
                code = refusal.code
            else:
                self.offsets.delete_all(effects, group_id)
                group.write_tombstones(effects)
            results.append(DeletableGroupResult(group_id=group_id, error_code=code))
        effects.answer(reply, results)

    def list(self, effects: Effects, reply: Reply, states: set[str], kinds: set[str]) -> None:
        """Filters in lower case; empty ones let everything pass."""
        found = [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.listed_protocol_type,
                group_state=group.state_name,
                group_type=group.kind,
            )
            for group in self.groups.values()
            if (not states or group.state_name.lower() in states) and (not kinds or group.kind in kinds)
        ]
        effects.answer(reply, found)

    def describe(self, effects: Effects, reply: Reply, group_ids: Iterable[str], version: int) -> None:
        """Classic groups only; others have a call of their own."""
        effects.answer(reply, [self._described(group_id, version) for group_id in group_ids])

    def describe_consumer_groups(self, effects: Effects, reply: Reply, group_ids: Iterable[str]) -> None:
        found = []
        for group_id in group_ids:
            try:
                group = self.consumer.groups.find(group_id)
            except KafkaError as refusal:
                code, message = int(refusal.code), refusal.message
                found.append(consumer_group_describe.DescribedGroup(code, message, group_id))
            else:
                found.append(describe(group, self.consumer.assignment.default, self.consumer.groups.image))
        effects.answer(reply, found)

    def _described(self, group_id: str, version: int) -> DescribedGroup:
        group = self.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            gone = DescribedGroup(group_id=group_id, group_state=State.DEAD.value)
            if version >= 6:
                what = "not found" if group is None else "is not a classic group"
                gone.error_code = int(ErrorCode.GROUP_ID_NOT_FOUND)
                gone.error_message = f"Group {group_id} {what}."
            return gone
        stable = group.state is State.STABLE
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state_name,
            protocol_type=group.protocol_type or "",
            protocol_data=(group.protocol or "") if stable else "",
            members=[
                DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.metadata(group.protocol) if stable else b"",
                    member_assignment=member.assignment,
                )
                for member in group.members.values()
            ],
        )


def _commit_of_today(
    key: records.LegacyOffsetCommitKey, value: records.LegacyOffsetCommitValue | None
) -> CoordinatorRecord:
    """The commit that a record of the oldest type stands for."""
    today = None
    if value is not None:
        today = records.OffsetCommitValue(
            offset=value.offset, metadata=value.metadata, commit_timestamp=value.commit_timestamp
        )
    return CoordinatorRecord(OffsetCommitKey(key.group, key.topic, key.partition), today)


def _utf16_units(text: str) -> int:
    """The length of a string in Java, which the limit of a commit's metadata counts, whatever its name says."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def _check_each(check: Callable[[str, bytes, int], None], commits: list[Commit]) -> None:
    for commit in commits:
        check(commit.topic, commit.topic_id, commit.partition.partition_index)


def _fetched(index: int, committed: CommittedOffset | None, topic_id: bytes) -> OffsetFetchResponsePartitions:
    """An offset that was committed for another topic of the same name does not count."""
    if committed is None or (ZERO not in (committed.topic_id, topic_id) and committed.topic_id != topic_id):
        return OffsetFetchResponsePartitions(index, NO_OFFSET)
    value = committed.value
    return OffsetFetchResponsePartitions(index, value.offset, value.leader_epoch, value.metadata)
