"""A broker without the controller role follows the metadata log: Fetch and FetchSnapshot from the quorum's leader.

It is an observer: it never votes, and the quorum never waits for it. Nothing is kept on disk; a start begins with the
latest snapshot of the quorum. What is fetched reaches the subscriber up to the high watermark; the few batches above it
wait in memory, and are dropped if a new leader does not have them.

Whoever is asked and does not lead says who does. Without a hint the next of the bootstrap servers is asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pylogd.broker.peer import Peer, PeerError
from pylogd.controller.snapshot import SnapshotId
from pylogd.protocol.batch import iter_headers
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.uuids import METADATA_TOPIC_ID

if TYPE_CHECKING:
    from pylogd.controller.driver import MetadataSubscriber
    from pylogd.runtime.network import Network

logger = logging.getLogger(__name__)

TOPIC = "__cluster_metadata"
Address = tuple[str, int]

_FETCH_BYTES_MAX = 8 << 20
_FETCH_WAIT_MS = 500
_RETRY_SECONDS = 0.05
_RETRY_SECONDS_MAX = 1.0
#: A leader that is silent for this long may be gone: ask around.
_TIMEOUT_SECONDS = 2.0


class MetadataObserver:
    """One replica of the metadata log that only reads."""

    def __init__(
        self,
        network: Network,
        subscriber: MetadataSubscriber,
        *,
        node_id: int,
        directory_id: bytes,
        cluster_id: str,
        bootstrap: Sequence[Address],
    ) -> None:
        self._network = network
        self._subscriber = subscriber
        self._node_id = node_id
        self._directory_id = directory_id
        self._cluster_id = cluster_id
        self._bootstrap = list(bootstrap)
        self._turn = 0
        self.epoch = 0
        self.leader_id = -1
        self._leader: Address | None = None
        self._peers: dict[Address, Peer] = {}
        #: The next offset to ask for and the epoch of the record before it.
        self._offset = 0
        self._last_epoch = 0
        #: Fetched batches that are not committed yet: (next offset, epoch, bytes).
        self._pending: list[tuple[int, int, bytes]] = []
        self._committed = (0, 0)
        self._task: asyncio.Task[None] | None = None

    def leader_address(self) -> Address | None:
        """Where the active controller is, as far as is known."""
        return self._leader

    def start(self) -> None:
        self._task = self._network.loop.create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for peer in self._peers.values():
            peer.close()

    # -- the loop

    async def _run(self) -> None:
        pause = _RETRY_SECONDS
        while True:
            address = self._leader or self._next_bootstrap()
            try:
                if await self._fetch(address):
                    pause = _RETRY_SECONDS
                    continue
            except PeerError as failure:
                logger.debug("fetching metadata from %s:%d failed: %s", *address, failure)
                if self._leader == address:
                    self._leader = None
            await asyncio.sleep(pause)
            pause = min(2 * pause, _RETRY_SECONDS_MAX)

    def _next_bootstrap(self) -> Address:
        self._turn += 1
        return self._bootstrap[self._turn % len(self._bootstrap)]

    def _peer(self, address: Address) -> Peer:
        peer = self._peers.get(address)
        if peer is None:
            peer = self._peers[address] = Peer(
                self._network, *address, client_id=f"raft-client-{self._node_id}", timeout_s=_TIMEOUT_SECONDS
            )
        return peer

    async def _fetch(self, address: Address) -> bool:
        """One request; True when the next may follow at once."""
        from pylogd.protocol.messages import fetch as m

        part = m.FetchPartition(
            partition=0,
            current_leader_epoch=self.epoch,
            fetch_offset=self._offset,
            last_fetched_epoch=self._last_epoch,
            partition_max_bytes=0,
            replica_directory_id=self._directory_id,
        )
        request = m.FetchRequest(
            cluster_id=self._cluster_id,
            replica_state=m.ReplicaState(self._node_id, -1),
            max_wait_ms=_FETCH_WAIT_MS,
            min_bytes=0,
            max_bytes=_FETCH_BYTES_MAX,
            topics=[m.FetchTopic(TOPIC, METADATA_TOPIC_ID, [part])],
        )
        answers: list[Any] = []

        def handle(response: Any, failure: PeerError | None) -> None:
            # The records are views of the receive buffer: take what is needed before it is reused.
            if not done.done():
                answers.append(failure if failure is not None else self._take(response))
                done.set_result(None)

        done: asyncio.Future[None] = self._network.loop.create_future()
        self._peer(address).send(request, handle)
        await done
        answer = answers[0]
        if isinstance(answer, PeerError):
            raise answer
        if isinstance(answer, SnapshotId):
            return await self._load_snapshot(address, answer)
        return bool(answer)

    def _take(self, response: Any) -> bool | SnapshotId:
        if response.error_code:
            logger.warning("the quorum refuses to serve metadata: %s", ErrorCode(response.error_code).name)
            return False
        data = response.responses[0].partitions[0]
        moved = self._note_leader(data.current_leader, response.node_endpoints)
        if data.error_code:
            logger.debug("metadata fetch answered with %s", ErrorCode(data.error_code).name)
            return moved
        if data.snapshot_id.epoch >= 0:
            return SnapshotId(data.snapshot_id.end_offset, data.snapshot_id.epoch)
        if data.diverging_epoch.epoch >= 0:
            self._drop_pending(data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
            return True
        records = data.records
        if records:
            for position, header in iter_headers(records):
                if header.base_offset >= self._offset:
                    taken = bytes(records[position : position + header.length])
                    self._pending.append((header.next_offset, header.partition_leader_epoch, taken))
                    self._offset, self._last_epoch = header.next_offset, header.partition_leader_epoch
        self._commit(data.high_watermark)
        return True

    def _commit(self, high_watermark: int) -> None:
        batches = []
        pending = self._pending
        while pending and pending[0][0] <= high_watermark:
            offset, epoch, data = pending.pop(0)
            batches.append(data)
            self._committed = (offset, epoch)
        if batches:
            self._subscriber.committed(batches)

    def _drop_pending(self, epoch: int, end_offset: int) -> None:
        """The leader does not have what follows; what is committed it has."""
        while self._pending and (self._pending[-1][0] > end_offset or self._pending[-1][1] > epoch):
            self._pending.pop()
        self._offset, self._last_epoch = self._pending[-1][:2] if self._pending else self._committed

    def _note_leader(self, leader: Any, endpoints: list[Any]) -> bool:
        """True when the leader or its epoch is news."""
        if leader.leader_epoch < self.epoch or leader.leader_epoch < 0:
            return False
        news = leader.leader_epoch > self.epoch or leader.leader_id != self.leader_id
        self.epoch, self.leader_id = leader.leader_epoch, leader.leader_id
        for endpoint in endpoints:
            if endpoint.node_id == leader.leader_id:
                news = news or self._leader != (endpoint.host, endpoint.port)
                self._leader = (endpoint.host, endpoint.port)
        return news

    async def _load_snapshot(self, address: Address, snapshot_id: SnapshotId) -> bool:
        from pylogd.protocol.messages import fetch_snapshot as m

        data = bytearray()
        while True:
            part = m.RequestPartitionSnapshot(
                partition=0,
                current_leader_epoch=self.epoch,
                snapshot_id=m.SnapshotId(snapshot_id.offset, snapshot_id.epoch),
                position=len(data),
                replica_directory_id=self._directory_id,
            )
            request = m.FetchSnapshotRequest(
                cluster_id=self._cluster_id,
                replica_id=self._node_id,
                max_bytes=_FETCH_BYTES_MAX,
                topics=[m.RequestTopicSnapshot(TOPIC, [part])],
            )
            sizes: list[int] = []

            def handle(
                response: Any, failure: PeerError | None, done: asyncio.Future[None], sizes: list[int] = sizes
            ) -> None:
                if done.done():
                    return
                if failure is not None:
                    done.set_exception(failure)
                    return
                if not response.error_code and response.topics:
                    answer = response.topics[0].partitions[0]
                    self._note_leader(answer.current_leader, response.node_endpoints)
                    if not answer.error_code:
                        data.extend(answer.unaligned_records)
                        sizes.append(answer.size)
                done.set_result(None)

            done: asyncio.Future[None] = self._network.loop.create_future()
            self._peer(address).send(request, lambda response, failure, done=done: handle(response, failure, done))
            await done
            if not sizes:
                return False
            if len(data) >= sizes[0]:
                break
        logger.info("loading metadata snapshot %s, %d bytes", snapshot_id.name, len(data))
        self._subscriber.load_snapshot(bytes(data), snapshot_id)
        self._pending.clear()
        self._offset, self._last_epoch = self._committed = (snapshot_id.offset, snapshot_id.epoch)
        return True
