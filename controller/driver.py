"""Where the controller's decisions become durable: the one-voter driver of the metadata log.

With one voter there is nobody to ask, but the steps are KRaft's: each start takes a new epoch and writes it to
`quorum-state` before anything else, then opens the epoch with a LeaderChange record; a record is committed when it is
on stable storage. Appends are written at once and share their fsyncs: while one flush runs on a worker, the records of
everybody else queue for the next.

Order at a commit: subscribers get the committed batches first, then the waiting replies go out, so that a client that
was told its topic exists finds it in this node's metadata.

A KRaft core takes over the inside of this class; what the controller sees stays: `epoch`, `end_offset`, `append`,
`committed`, `subscribe`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from pylogd.controller.image import ClusterImage
from pylogd.controller.log import BATCH_BYTES_MAX, MetadataLog
from pylogd.controller.quorum_state import QuorumState, read_quorum_state, write_quorum_state
from pylogd.controller.records import Batch, VersionedRecord, control_batch, decode_batches, metadata_batch
from pylogd.controller.registrations import Endpoint
from pylogd.controller.snapshot import (
    SnapshotContents,
    SnapshotId,
    image_records,
    replay_snapshot,
    snapshot_batches,
    write_snapshot,
)
from pylogd.protocol.control import ControlType
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.runtime.clock import Clock
from pylogd.runtime.workers import Workers

logger = logging.getLogger(__name__)

#: Records per batch of a decision that need not be atomic.
RECORDS_PER_BATCH = 10_000
#: A stop writes a snapshot when this much log lies behind the last one.
SNAPSHOT_AT_STOP_BYTES = 256 << 10


class MetadataSubscriber(Protocol):
    """Who follows the committed metadata: the broker of this node, or of another."""

    def load_snapshot(self, data: bytes, snapshot_id: SnapshotId) -> None:
        """Start over from this snapshot."""

    def committed(self, batches: Sequence[bytes | bytearray]) -> None:
        """The next committed batches, in order and without gaps."""


class SingleVoterDriver:
    """The quorum of one."""

    def __init__(
        self,
        log: MetadataLog,
        *,
        node_id: int,
        directory_id: bytes,
        endpoints: Sequence[Endpoint],
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        workers: Workers,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.log = log
        self.node_id = node_id
        self.directory_id = directory_id
        self.epoch = 0
        self.kraft_version = 0
        self.committed_offset = 0
        self.voters: Any = None
        self._endpoints = list(endpoints)
        self._voters_offset = -1
        self._clock = clock
        self._loop = loop
        self._workers = workers
        self._on_failure = on_failure
        self._subscribers: list[MetadataSubscriber] = []
        self._pending: deque[tuple[int, bytearray]] = deque()
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._flushing: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._last_timestamp_ms = 0
        self._snapshot_task: asyncio.Task[None] | None = None
        self._bytes_since_snapshot = 0
        self._last_snapshot_ms = clock.monotonic_ms()

    # -- start -----------------------------------------------------------------------------------------------------

    def load(self, image: ClusterImage) -> None:
        """Replays snapshot and log into `image`; with one voter all that is on disk is committed."""
        log = self.log
        start = log.log.log_start_offset
        snapshot_id = log.latest_snapshot
        if snapshot_id is not None:
            self._note(replay_snapshot(log.read_snapshot(snapshot_id), image, snapshot_id))
            start = max(start, snapshot_id.offset)
        for data in log.read(start, log.end_offset):
            for batch in decode_batches(data):
                self._last_timestamp_ms = batch.timestamp_ms
                self._bytes_since_snapshot += batch.size
                image.epoch = batch.epoch
                if batch.control:
                    self._replay_control(batch)
                    image.offset = batch.last_offset
                else:
                    for at, record in enumerate(batch.records, batch.base_offset):
                        image.replay(record, at)
        self.committed_offset = log.end_offset
        log.log.high_watermark = log.end_offset

    def _note(self, contents: SnapshotContents) -> None:
        self.kraft_version = contents.kraft_version
        self.voters = contents.voters
        self._last_timestamp_ms = contents.last_contained_timestamp_ms
        snapshot_id = self.log.latest_snapshot
        if contents.voters is not None and snapshot_id is not None and snapshot_id.offset > 0:
            self._voters_offset = snapshot_id.offset - 1

    def _replay_control(self, batch: Batch) -> None:
        for at, record in enumerate(batch.records, batch.base_offset):
            if record.kind is ControlType.KRAFT_VERSION:
                self.kraft_version = record.message.kraft_version
            elif record.kind is ControlType.KRAFT_VOTERS:
                self.voters = record.message
                self._voters_offset = at

    @property
    def voter_ids(self) -> tuple[int, ...]:
        if self.voters is None:
            return (self.node_id,)
        return tuple(voter.voter_id for voter in self.voters.voters)

    def lead(self) -> None:
        """Takes the next epoch: first on disk, then as the records that open it. Refuses a quorum this node is not the
        only voter of."""
        if self.voters is not None:
            keys = [(voter.voter_id, bytes(voter.voter_directory_id)) for voter in self.voters.voters]
            if keys != [(self.node_id, self.directory_id)]:
                raise ValueError(
                    f"the voters of this metadata log are {keys}, not only node {self.node_id} with this directory"
                )
        files, directory = self.log.files, self.log.directory
        state = read_quorum_state(files, directory)
        if state is None:
            state = QuorumState()
        self.epoch = max(state.epoch, self.log.last_epoch) + 1
        elected = QuorumState(self.epoch, self.node_id, voters=self.voter_ids)
        write_quorum_state(files, directory, elected, min(self.kraft_version, 1))
        self._open_epoch()

    def _open_epoch(self) -> None:
        from pylogd.protocol.messages import control_records as c

        voter = c.LeaderChangeVoter(voter_id=self.node_id)
        message = c.LeaderChangeMessage(version=0, leader_id=self.node_id, voters=[voter], granting_voters=[voter])
        records: list[tuple[ControlType, Any, int]] = [(ControlType.LEADER_CHANGE, message, 0)]
        if self.kraft_version >= 1:
            updated = self._voters_record()
            if self._voters_offset < 0 or updated != self.voters:
                version = c.KRaftVersionRecord(version=0, kraft_version=self.kraft_version)
                records.append((ControlType.KRAFT_VERSION, version, 0))
                records.append((ControlType.KRAFT_VOTERS, updated, 0))
                self.voters = updated
                self._voters_offset = self.end_offset + 2
        batch = control_batch(records, base_offset=self.end_offset, epoch=self.epoch, timestamp_ms=self._clock.now_ms())
        self._write(batch)

    def _voters_record(self) -> Any:
        from pylogd.protocol.messages import control_records as c

        return c.VotersRecord(
            version=0,
            voters=[
                c.Voter(
                    voter_id=self.node_id,
                    voter_directory_id=self.directory_id,
                    endpoints=[c.Endpoint(name=e.name, host=e.host, port=e.port) for e in self._endpoints],
                    kraft_version_feature=c.KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
                )
            ],
        )

    # -- append and commit -----------------------------------------------------------------------------------------

    @property
    def end_offset(self) -> int:
        """The offset the next record gets."""
        return self.log.end_offset

    def append(self, records: Sequence[VersionedRecord], *, atomic: bool = True) -> int:
        """Appends records and returns the offset of the last; `committed()` tells when it counts. Atomic records share
        one batch, so a crash keeps all of them or none."""
        if self._failure is not None:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the metadata log failed and takes no more records")
        if not records:
            raise ValueError("nothing to append")
        now_ms = self._clock.now_ms()
        step = len(records) if atomic else RECORDS_PER_BATCH
        for start in range(0, len(records), step):
            batch = metadata_batch(
                records[start : start + step], base_offset=self.end_offset, epoch=self.epoch, timestamp_ms=now_ms
            )
            if len(batch) > BATCH_BYTES_MAX:
                raise KafkaError(
                    ErrorCode.POLICY_VIOLATION, f"a metadata batch of {len(batch)} bytes is over {BATCH_BYTES_MAX}"
                )
            self._last_timestamp_ms = now_ms
            self._write(batch)
        return self.end_offset - 1

    def _write(self, batch: bytearray) -> None:
        try:
            self.log.append(batch, self.epoch, self._clock.now_ms())
        except (KafkaError, OSError) as error:
            # The records were replayed into a state that will never be durable: this controller is done.
            self._fail(error)
            raise
        self._bytes_since_snapshot += len(batch)
        self._pending.append((self.end_offset, batch))
        if self._flushing is None:
            self._flushing = self._loop.create_task(self._flush())

    def committed(self, offset: int) -> asyncio.Future[None]:
        """Done when everything up to and including `offset` is committed; fails when it never will be."""
        future: asyncio.Future[None] = self._loop.create_future()
        if self._failure is not None:
            future.set_exception(self._failure)
        elif offset < self.committed_offset:
            future.set_result(None)
        else:
            self._waiting.append((offset, future))
        return future

    async def _flush(self) -> None:
        try:
            while self._pending:
                plan = self.log.flush_plan()
                if plan.segments:
                    await self._workers.offload(plan.run)
                self.log.flushed(plan)
                self._commit(plan.end)
        except Exception as error:
            self._fail(error)
        finally:
            self._flushing = None

    def _commit(self, end: int) -> None:
        batches = []
        while self._pending and self._pending[0][0] <= end:
            batches.append(self._pending.popleft()[1])
        self.committed_offset = end
        for subscriber in self._subscribers:
            subscriber.committed(batches)
        while self._waiting and self._waiting[0][0] < end:
            future = self._waiting.popleft()[1]
            if not future.done():
                future.set_result(None)

    def _fail(self, error: BaseException) -> None:
        if self._failure is not None:
            return
        self._failure = error
        logger.error("the metadata log failed: %s", error)
        self._pending.clear()
        while self._waiting:
            future = self._waiting.popleft()[1]
            if not future.done():
                future.set_exception(KafkaError(ErrorCode.NOT_CONTROLLER, "the controller lost its metadata log"))
        self._on_failure(error)

    def subscribe(self, subscriber: MetadataSubscriber) -> None:
        """Hands over all that is committed, and from then on every commit."""
        log = self.log
        start = log.log.log_start_offset
        snapshot_id = log.latest_snapshot
        if snapshot_id is not None:
            subscriber.load_snapshot(log.read_snapshot(snapshot_id), snapshot_id)
            start = max(start, snapshot_id.offset)
        for data in log.read(start, self.committed_offset):
            subscriber.committed([data])
        self._subscribers.append(subscriber)

    # -- snapshots -------------------------------------------------------------------------------------------------

    def snapshot_due(self) -> bool:
        """By size, or by time when there is anything new; never two at once."""
        if self._snapshot_task is not None or self._failure is not None or not self._bytes_since_snapshot:
            return False
        config = self.log.config
        if self._bytes_since_snapshot >= config.snapshot_interval_bytes:
            return True
        waited_ms = self._clock.monotonic_ms() - self._last_snapshot_ms
        return 0 < config.snapshot_interval_ms <= waited_ms

    def start_snapshot(self, image: ClusterImage) -> None:
        """Writes a snapshot of `image` as it is now, once what it contains is committed."""
        if image.pending is not None:
            return  # half a metadata transaction is no state to start from
        frozen = image.freeze()
        self._bytes_since_snapshot = 0
        self._last_snapshot_ms = self._clock.monotonic_ms()
        self._snapshot_task = self._loop.create_task(self._snapshot(frozen, self.end_offset, self._last_timestamp_ms))

    async def _snapshot(self, image: ClusterImage, end_offset: int, timestamp_ms: int) -> None:
        snapshot_id = SnapshotId(end_offset, self.epoch)
        try:
            await self.committed(end_offset - 1)
            batches = snapshot_batches(
                image_records(image),
                epoch=snapshot_id.epoch,
                last_contained_timestamp_ms=timestamp_ms,
                now_ms=self._clock.now_ms(),
                kraft_version=self.kraft_version,
                voters=self.voters if self.kraft_version >= 1 else None,
            )
            path = self.log.snapshot_path(snapshot_id)
            size = await self._workers.offload(write_snapshot, self.log.files, path, batches)
            self.log.snapshot_written(snapshot_id)
            logger.info("wrote metadata snapshot %s, %d bytes", snapshot_id.filename, size)
            self.log.clean(self._clock.now_ms())
        except (OSError, KafkaError) as error:
            # The log is whole without it; the next one may succeed.
            logger.error("could not write metadata snapshot %s: %s", snapshot_id.filename, error)
        finally:
            self._snapshot_task = None

    # -- end -------------------------------------------------------------------------------------------------------

    async def close(self, image: ClusterImage | None = None) -> None:
        """Waits for what is under way; all that was appended is durable afterwards. With an `image` a snapshot of it is
        left behind when the next start would otherwise have much to replay."""
        while self._flushing is not None:
            await asyncio.wait([self._flushing])
        if (
            image is not None
            and self._failure is None
            and self._snapshot_task is None
            and self._bytes_since_snapshot >= SNAPSHOT_AT_STOP_BYTES
        ):
            self.start_snapshot(image)
        if self._snapshot_task is not None:
            await asyncio.wait([self._snapshot_task])
        if self._failure is None:
            self.log.close()
