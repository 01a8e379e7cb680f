"""The group coordinator of this broker: from a group to its shard, and requests that concern many shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from pylogd.coordinators.shard.effects import Effects, Reply
from pylogd.coordinators.shard.key_placement import partition_for
from pylogd.coordinators.shard.shards import Shards
from pylogd.metadata.topic_names import OFFSETS_TOPIC
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.runtime.deferred import Deferred
from pylogd.runtime.parts import Parts

if TYPE_CHECKING:
    from pylogd.config.host import Host
    from pylogd.coordinators.groups.groups import GroupState
    from pylogd.coordinators.shard.shard import Shard
    from pylogd.metadata.delta import ImageDelta
    from pylogd.metadata.image import ClusterImage
    from pylogd.metadata.latest import LatestImage
    from pylogd.protocol.schema import Message
    from pylogd.replication.replicas import Replicas

#: What one shard answers.
Part = TypeVar("Part")

_REMEMBERED_MAX = 10_000


class GroupCoordinator:
    def __init__(self, host: Host, metadata: LatestImage, replicas: Replicas) -> None:
        self._host = host
        self._metadata = metadata
        #: Partitions of groups asked for lately, in a topic of `_counted` partitions.
        self._partitions: dict[str, int] = {}
        self._counted = 0
        config = host.config
        self.shards = Shards(
            host,
            metadata,
            replicas,
            OFFSETS_TOPIC,
            self._new_state,
            load_buffer_bytes=config["offsets.load.buffer.size"],
            compression=config["offsets.topic.compression.codec"],
            commit_timeout_ms=config["offsets.commit.timeout.ms"],
        )

    def _new_state(self, shard: Shard[GroupState]) -> GroupState:
        from pylogd.coordinators.groups.groups import GroupState

        return GroupState(self._host.config, self._new_id, self._metadata)

    def _new_id(self) -> str:
        """A random UUID as Java prints it."""
        raw = bytearray(self._host.chance.randbytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        text = raw.hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def partition_of(self, group_id: str) -> int:
        count = self.shards.partition_count or self._host.config["offsets.topic.num.partitions"]
        if count != self._counted or len(self._partitions) > _REMEMBERED_MAX:
            self._partitions = {}
            self._counted = count
        found = self._partitions.get(group_id)
        if found is None:
            found = self._partitions[group_id] = partition_for(group_id, count)
        return found

    def shard_of(self, group_id: str) -> Shard[GroupState]:
        """KafkaError unless this broker coordinates the group and is ready to."""
        return self.shards.ready(self.partition_of(group_id))

    def by_shard(
        self,
        group_ids: Iterable[str],
        ask: Callable[[Shard[GroupState], Effects, Reply, list[str]], None],
        refused: Callable[[list[str], ErrorCode, str | None], Part],
        finish: Callable[[list[Part]], Message],
        *,
        writes: bool = False,
    ) -> Deferred:
        """Ask each shard about its groups. `refused` makes the part of the answer for groups that cannot be asked,
        `finish` the response of all parts, in the order of the groups."""
        by_index: dict[int, list[str]] = {}
        for group_id in group_ids:
            by_index.setdefault(self.partition_of(group_id), []).append(group_id)
        parts = Parts(len(by_index), finish)
        for slot, (index, ids) in enumerate(by_index.items()):
            try:
                shard = self.shards.ready(index)
            except KafkaError as refusal:
                parts.give(slot, refused(ids, refusal.code, refusal.message))
                continue
            reply = Reply(lambda code, message, ids=ids: refused(ids, code, message))  # type: ignore[misc]
            reply.listen(lambda answer, slot=slot: parts.give(slot, answer))  # type: ignore[misc]
            event = lambda effects, shard=shard, reply=reply, ids=ids: ask(shard, effects, reply, ids)  # noqa: E731
            shard.submit(event, reply, writes=writes)
        return parts.deferred

    def everywhere(
        self, ask: Callable[[Shard[GroupState], Effects, Reply], None], finish: Callable[[list[Any]], Message]
    ) -> Deferred:
        """Ask every shard of this broker. KafkaError when one is still loading; one that leaves meanwhile has
        nothing to say (None)."""
        shards = [shard for shard in self.shards.by_partition.values() if not shard.failed]
        for shard in shards:
            shard.check()
        parts = Parts(len(shards), finish)
        for slot, shard in enumerate(shards):
            reply = Reply(lambda code, message: None)
            reply.listen(lambda answer, slot=slot: parts.give(slot, answer))  # type: ignore[misc]
            shard.submit(lambda effects, shard=shard, reply=reply: ask(shard, effects, reply), reply, writes=False)  # type: ignore[misc]
        return parts.deferred

    def apply(self, delta: ImageDelta, image: ClusterImage) -> None:
        """The cluster's metadata changed."""
        self.shards.apply(delta, image)

    async def close(self) -> None:
        await self.shards.close()
