"""The transaction coordinator of this broker: from a transactional id to its shard."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from pylogd.coordinators.shard.effects import Effects, Reply
from pylogd.coordinators.shard.key_placement import partition_for
from pylogd.coordinators.shard.shards import Shards
from pylogd.coordinators.transactions.marker_append import Done, MarkerAppend
from pylogd.coordinators.transactions.markers import Markers
from pylogd.coordinators.transactions.transaction import TopicPartition
from pylogd.coordinators.transactions.transactions import TransactionSettings, TransactionsState
from pylogd.metadata.topic_names import TRANSACTIONS_TOPIC
from pylogd.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from pylogd.config.host import Host
    from pylogd.coordinators.shard.marker import Marker
    from pylogd.coordinators.shard.shard import Shard
    from pylogd.metadata.delta import ImageDelta
    from pylogd.metadata.image import ClusterImage
    from pylogd.metadata.latest import LatestImage
    from pylogd.replication.replicas import Replicas
    from pylogd.rpc.broker_pool import Peers

VERSION_FEATURE = "transaction.version"

#: A code for each partition asked about.
Codes = dict[TopicPartition, ErrorCode]
Decision = Callable[[TransactionsState, Effects], None]


class ProducerIdSource(Protocol):
    """Where producer ids come from."""

    async def ready(self) -> None:
        """Returns when there is an id to take, or there will be none soon."""

    def take(self) -> int | None:
        """An id if there is one at hand."""

    def prefetch(self) -> None:
        """Have some fetched."""


class TransactionCoordinator:
    """`offsets` are the shards that take part in transactions, `peers` the brokers that lead other partitions."""

    def __init__(
        self,
        host: Host,
        metadata: LatestImage,
        replicas: Replicas,
        *,
        producer_ids: ProducerIdSource,
        offsets: Shards[Any],
        peers: Peers,
    ) -> None:
        self._host = host
        self._metadata = metadata
        self._producer_ids = producer_ids
        config = host.config
        self._settings = TransactionSettings(
            id_expiration_ms=config["transactional.id.expiration.ms"],
            timeout_ms_max=config["transaction.max.timeout.ms"],
            abort_interval_ms=config["transaction.abort.timed.out.transaction.cleanup.interval.ms"],
            expiry_interval_ms=config["transaction.remove.expired.transaction.cleanup.interval.ms"],
        )
        self._local_markers = MarkerAppend(host, replicas, offsets)
        self.markers = Markers(host, metadata, self._local_markers, peers)
        #: Requests that wait for producer ids.
        self._tasks: dict[asyncio.Task[None], None] = {}
        self.shards = Shards(
            host,
            metadata,
            replicas,
            TRANSACTIONS_TOPIC,
            self._new_state,
            load_buffer_bytes=config["transaction.state.log.load.buffer.size"],
        )

    def _new_state(self, shard: Shard[TransactionsState]) -> TransactionsState:
        return TransactionsState(
            self._settings,
            self._take_producer_id,
            lambda transaction: self.markers.send(shard, transaction),
            lambda: self.version,
        )

    def _take_producer_id(self) -> int | None:
        taken = self._producer_ids.take()
        if taken is None:
            self._producer_ids.prefetch()
        return taken

    @property
    def version(self) -> int:
        """The generation of the protocol the cluster agreed on."""
        return self._metadata.image.features.get(VERSION_FEATURE, 0)

    def partition_of(self, transactional_id: str) -> int:
        count = self.shards.partition_count or self._host.config["transaction.state.log.num.partitions"]
        return partition_for(transactional_id, count)

    def shard_of(self, transactional_id: str) -> Shard[TransactionsState]:
        """KafkaError unless this broker coordinates the id and is ready to."""
        return self.shards.ready(self.partition_of(transactional_id))

    def init_producer_id(
        self, reply: Reply, transactional_id: str, timeout_ms: int, expected: tuple[int, int] | None
    ) -> None:
        self._settings.check_timeout(timeout_ms)
        self._with_producer_id(
            transactional_id,
            reply,
            lambda state, effects: state.init_producer_id(effects, reply, transactional_id, timeout_ms, expected),
        )

    def end(
        self,
        reply: Reply,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        client_version: int,
    ) -> None:
        self._with_producer_id(
            transactional_id,
            reply,
            lambda state, effects: state.end(
                effects, reply, transactional_id, producer_id, producer_epoch, commit, client_version
            ),
        )

    def _with_producer_id(self, transactional_id: str, reply: Reply, decide: Decision) -> None:
        """Decide, once there are producer ids at hand if one may be needed."""
        if not self.shard_of(transactional_id).state.needs_producer_id(transactional_id):
            self._submit(transactional_id, reply, decide)
            return

        async def later() -> None:
            await self._producer_ids.ready()
            try:
                self._submit(transactional_id, reply, decide)
            except KafkaError as refusal:
                reply.fail(refusal.code)

        task = self._host.loop.create_task(later())
        self._tasks[task] = None
        task.add_done_callback(lambda _: self._tasks.pop(task, None))

    def _submit(
        self,
        transactional_id: str,
        reply: Reply,
        decide: Decision,
        writes: bool = True,
    ) -> None:
        shard = self.shard_of(transactional_id)
        shard.submit(lambda effects: decide(shard.state, effects), reply, writes=writes)

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        done: Callable[[Codes], None],
        *,
        verify_only: bool = False,
        client_version: int = 0,
    ) -> None:
        """Add partitions to a transaction, or see whether they are in it; `done` hears a code for each."""
        wanted = list(partitions)
        reply = Reply(lambda code, message: dict.fromkeys(wanted, code))
        reply.listen(done)

        def decide(state: TransactionsState, effects: Effects) -> None:
            who = (transactional_id, producer_id, producer_epoch)
            if verify_only:
                state.verify_partitions(effects, reply, *who, wanted)
            else:
                state.add_partitions(effects, reply, *who, wanted, client_version)

        try:
            if not transactional_id:
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            self._submit(transactional_id, reply, decide, writes=not verify_only)
        except KafkaError as refusal:
            reply.fail(refusal.code)

    def append_marker(self, topic: str, index: int, marker: Marker, done: Done) -> None:
        """Write a marker that another coordinator decided to a partition led here; `done` hears the outcome."""
        self._local_markers.append(topic, index, marker, done)

    def apply(self, delta: ImageDelta, image: ClusterImage) -> None:
        """The cluster's metadata changed."""
        self.shards.apply(delta, image)

    async def close(self) -> None:
        self.markers.close()
        for task in tuple(self._tasks):
            task.cancel()
        await self.shards.close()
