"""Committed offsets of the groups of one partition, and those that wait for their transaction to end.

A commit inside a transaction is kept aside under its producer id; its marker moves it to the others or drops it.
Commits of both kinds may meet on one partition, and compaction may remove either record, so the later record wins, not
the later marker. Where an offset is pending, a consumer that asks for stable offsets is told to wait.

Offsets expire `offsets.retention.minutes` after the group became empty, or after their commit when the group is simple
or no longer subscribed to the topic; what counts is the group's to say (`Group.expiration_base`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pylogd.coordinators.groups.commits import VERSION, Commit, CommittedOffset
from pylogd.coordinators.groups.group import Group
from pylogd.coordinators.shard.effects import Effects, Wanted
from pylogd.protocol.messages import group_records as records
from pylogd.protocol.uuids import ZERO

#: With a retention of its own (requests up to version 4) an offset is written in the version that has a field for it.
_VERSION_WITH_EXPIRY = 1
NO_EXPIRY = -1

ByPartition = dict[int, CommittedOffset]
ByTopic = dict[str, ByPartition]


class Offsets:
    def __init__(self) -> None:
        self.by_group: dict[str, ByTopic] = {}
        #: producer id -> {(group, topic, partition): offset}
        self.pending: dict[int, dict[tuple[str, str, int], CommittedOffset]] = {}
        #: (group, topic, partition) -> producers with a pending offset. Dicts as ordered sets.
        self._open: dict[str, dict[tuple[str, int], dict[int, None]]] = {}

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        return self.by_group.get(group_id, {}).get(topic, {}).get(partition)

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        open_ = self._open.get(group_id)
        return open_ is not None and (topic, partition) in open_

    # -- replay

    def replay(
        self, key: records.OffsetCommitKey, value: records.OffsetCommitValue | None, offset: int, producer_id: int
    ) -> None:
        group_id, topic, partition = key.group, key.topic, key.partition
        if value is None:
            self._remove(group_id, topic, partition)
        elif producer_id < 0:
            self._put(group_id, topic, partition, CommittedOffset(value, offset))
        else:
            committed = CommittedOffset(value, offset)
            self.pending.setdefault(producer_id, {})[group_id, topic, partition] = committed
            self._open.setdefault(group_id, {}).setdefault((topic, partition), {})[producer_id] = None

    def replay_end_transaction(self, producer_id: int, committed: bool) -> None:
        pending = self.pending.pop(producer_id, None)
        if pending is None:
            return
        for (group_id, topic, partition), offset in pending.items():
            self._close(group_id, topic, partition, producer_id)
            if committed:
                existing = self.get(group_id, topic, partition)
                if existing is None or offset.record_offset > existing.record_offset:
                    self._put(group_id, topic, partition, offset)

    def _put(self, group_id: str, topic: str, partition: int, offset: CommittedOffset) -> None:
        try:
            self.by_group[group_id][topic][partition] = offset
        except KeyError:
            self.by_group.setdefault(group_id, {}).setdefault(topic, {})[partition] = offset

    def _remove(self, group_id: str, topic: str, partition: int) -> None:
        topics = self.by_group.get(group_id)
        if topics is not None and topic in topics:
            topics[topic].pop(partition, None)
            if not topics[topic]:
                del topics[topic]
                if not topics:
                    del self.by_group[group_id]
        for producer_id in tuple(self._open.get(group_id, {}).get((topic, partition), ())):
            self.pending.get(producer_id, {}).pop((group_id, topic, partition), None)
            self._close(group_id, topic, partition, producer_id)

    def _close(self, group_id: str, topic: str, partition: int, producer_id: int) -> None:
        partitions = self._open.get(group_id)
        producers = None if partitions is None else partitions.get((topic, partition))
        if partitions is None or producers is None:
            return
        producers.pop(producer_id, None)
        if not producers:
            del partitions[topic, partition]
            if not partitions:
                del self._open[group_id]

    # -- writing

    def commit(self, effects: Effects, commits: list[Commit], retention_ms: int = NO_EXPIRY) -> None:
        """Write commits, all or none; they are pending when the event runs for a producer."""
        if len(commits) == 1 and retention_ms == NO_EXPIRY:
            commit = commits[0]
            value = _value(commit, effects.now_ms, NO_EXPIRY)
            effects.write(commit.key, value, VERSION, commit.encode(value))
            return
        expire_ms = NO_EXPIRY if retention_ms == NO_EXPIRY else effects.now_ms + retention_ms
        written: list[Wanted] = []
        for commit in commits:
            value = _value(commit, effects.now_ms, expire_ms)
            if expire_ms == NO_EXPIRY:
                written.append((commit.key, value, VERSION, commit.encode(value)))
            else:
                written.append((commit.key, value, _VERSION_WITH_EXPIRY, None))
        effects.write_all(written)

    def delete(self, effects: Effects, group_id: str, *places: tuple[str, int]) -> None:
        """Write a tombstone for each topic and partition where there is anything to delete, all or none."""
        effects.write_all(
            [
                (records.OffsetCommitKey(group_id, topic, partition), None, 0, None)
                for topic, partition in dict.fromkeys(places)
                if self.get(group_id, topic, partition) is not None or self.is_pending(group_id, topic, partition)
            ]
        )

    def delete_all(self, effects: Effects, group_id: str) -> None:
        self.delete(effects, group_id, *self._known(group_id))

    def _known(self, group_id: str) -> list[tuple[str, int]]:
        """Every partition with a committed or pending offset."""
        found = [(topic, index) for topic, offsets in self.by_group.get(group_id, {}).items() for index in offsets]
        found += [place for place in self._open.get(group_id, ()) if place not in found]
        return found

    def topics_deleted(self, effects: Effects, topics: Mapping[str, bytes]) -> None:
        """Offsets of deleted topics go, unless they belong to another topic of the same name."""
        doomed = [
            (group_id, topic, partition)
            for group_id, by_topic in self.by_group.items()
            for topic, topic_id in topics.items()
            for partition, offset in by_topic.get(topic, {}).items()
            if offset.topic_id in (ZERO, topic_id)
        ]
        doomed += [
            place
            for pending in self.pending.values()
            for place, offset in pending.items()
            if place[1] in topics and offset.topic_id in (ZERO, topics[place[1]])
        ]
        for group_id, topic, partition in dict.fromkeys(doomed):
            self.delete(effects, group_id, (topic, partition))

    def expire(self, effects: Effects, group: Group, retention_ms: int) -> bool:
        """Delete what has expired; True when the group has no offsets any more."""
        group_id = group.group_id
        if group_id not in self.by_group:
            return group_id not in self._open
        base = group.expiration_base()
        if base is None:
            return False
        now_ms = effects.now_ms
        for topic, partition, offset in tuple(self._of(group_id)):
            if group.is_subscribed_to(topic) or self.is_pending(group_id, topic, partition):
                continue
            if offset.value.expire_timestamp != NO_EXPIRY:
                expired = now_ms >= offset.value.expire_timestamp
            else:
                expired = now_ms - base(offset) >= retention_ms
            if expired:
                self.delete(effects, group_id, (topic, partition))
        return group_id not in self.by_group and group_id not in self._open

    def _of(self, group_id: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        for topic, offsets in self.by_group.get(group_id, {}).items():
            for partition, offset in offsets.items():
                yield topic, partition, offset


def _value(commit: Commit, now_ms: int, expire_ms: int) -> records.OffsetCommitValue:
    asked = commit.partition
    return records.OffsetCommitValue(
        asked.committed_offset,
        asked.committed_leader_epoch,
        asked.committed_metadata or "",
        now_ms,
        expire_ms,
        commit.stored_id,
    )
