"""Where the controller's decisions become durable and shared: the thin loop around the Raft core.

The core (`raft/`) decides; here its output is carried out, in the order it asks for: the hard state is on disk before
anything is sent, requests go out over the peers' connections, fsyncs run on a worker (`log_flushes`). A quorum of one
is the same thing without peers: it elects itself in its first event and commits with each fsync.

Order at a commit: subscribers get the committed batches first, then the waiting replies go out, so that a client that
was told its topic exists finds it in this node's metadata. Leadership is announced when everything of earlier epochs is
committed and handed to the subscribers; when it is lost, every waiting reply fails and the controller starts over from
the committed log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any

from pylogd.controller.quorum.log_flushes import LogFlushes
from pylogd.controller.quorum.metadata_log import BATCH_BYTES_MAX, MetadataLog
from pylogd.controller.quorum.metadata_stream import MetadataStream, MetadataSubscriber
from pylogd.controller.quorum.quorum_peers import Connect, QuorumPeers
from pylogd.controller.quorum.quorum_settings import QuorumSettings
from pylogd.controller.quorum.quorum_state import QuorumState, read_quorum_state, write_quorum_state
from pylogd.controller.quorum.quorum_view import QuorumView
from pylogd.controller.quorum.quorum_waiters import ChangeWaiters, CommitWaiters, LeadershipListener
from pylogd.controller.quorum.raft_log import DiskLog
from pylogd.controller.quorum.snapshots import HasImage, SnapshotWriter
from pylogd.controller.raft import changes
from pylogd.controller.raft.leader import Leader
from pylogd.controller.raft.log_view import LogFull, OffsetAndEpoch
from pylogd.controller.raft.output import HardState, NotLeader, Output, RaftError
from pylogd.controller.raft.raft_node import RaftNode
from pylogd.metadata.image import ClusterImage
from pylogd.metadata.record_batches import VersionedRecord, metadata_batch
from pylogd.metadata.registrations import Endpoint
from pylogd.metadata.snapshot import SnapshotId
from pylogd.protocol.errors import ErrorCode, KafkaError, ProtocolError
from pylogd.runtime.clock import Clock
from pylogd.runtime.files import DISK_FULL_ERRORS
from pylogd.runtime.workers import Workers

logger = logging.getLogger(__name__)

#: Records per batch of a decision that need not be atomic.
RECORDS_PER_BATCH = 10_000
#: A stop writes a snapshot when this much log lies behind the last one.
SNAPSHOT_AT_STOP_BYTES = 256 << 10
#: How long a leader that stops waits for a successor.
HANDOVER_S = 5.0
#: How long it waits before that for the others to have all it has.
CATCH_UP_S = 1.0
#: A time-out of the connection itself comes after the core's own.
_PEER_GRACE_S = 1.0


class QuorumDriver(QuorumView):
    """One node's part in the quorum, as voter or observer."""

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
        quorum: QuorumSettings | None = None,
        connect: Connect | None = None,
        rng: Random | None = None,
    ) -> None:
        self.directory_id = directory_id
        self._loop = loop
        self._workers = workers
        self._on_failure = on_failure
        settings = (quorum or QuorumSettings()).for_replica(node_id, directory_id, endpoints)
        self._disk = DiskLog(log, clock)
        self._peers = QuorumPeers(self, connect, clock, loop)
        state = read_quorum_state(log.files, log.directory)
        node = RaftNode(
            settings,
            self._disk,
            None if state is None else state.hard_state,
            rng or Random(node_id),
            flushed_offset=min(log.log.flushed_offset, log.end_offset),
            wall_ms=lambda now_ms: clock.now_ms(),
        )
        super().__init__(node, log, clock)
        self.snapshots = SnapshotWriter(log, clock, loop, self._snapshot_written)
        self._listener: LeadershipListener | None = None
        self._led_epoch: int | None = None
        self._state: HasImage | None = None
        self._stream = MetadataStream(log, self._passed)
        self._waiting = CommitWaiters(loop)
        self._flushes = LogFlushes(
            log,
            loop,
            workers,
            done=lambda flush: self._event(partial(self.node.flushed, flush)),
            failed=self.fail,
            may_wait=lambda: not self._stopping and (self.is_only_voter or not self.node.is_leader),
        )
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0
        self._failure: BaseException | None = None
        self._closed = False
        self._stopping = False
        self._changes = ChangeWaiters(loop)
        #: Called when the role has changed and a leader is known: another one, or the same in a new epoch.
        self.leader_listeners: list[Callable[[], None]] = []

    # -- what is known

    @property
    def is_leader(self) -> bool:
        """Whether decisions may be appended here."""
        return self._led_epoch is not None

    @property
    def majority_is_down(self) -> bool:
        """Whether so many voters refuse dials that there can be no active controller. Not for long, if they restart."""
        endpoints = [self.node.voters.endpoints(id_).get(self._listener_name) for id_ in self.voter_ids]
        down = sum(address is not None and self._peers.is_down(address) for address in endpoints)
        return down > (len(endpoints) - 1) // 2

    # -- start

    def start(self, listener: LeadershipListener | None = None, state: HasImage | None = None) -> None:
        """Takes part from now on. Snapshots are written of the image that `state` holds."""
        self._listener = listener
        self._state = state
        out = self.node.start(self._clock.monotonic_ms())
        node = self.node
        if not node.voters.is_voter(node.local) and not node.connections.bootstrap:
            keys = [(key.id, key.directory_id) for key in node.voters.keys]
            raise ValueError(
                f"the voters of this metadata log are {keys}, not node {self.node_id} with this directory, and no "
                "bootstrap server is known that could tell where they are"
            )
        self._do(out)

    # -- events

    def _event(self, event: Callable[[int], Output]) -> None:
        """Lets the core handle an event. An error of the core or of its disk ends this node's part."""
        if self._failure is not None or self._closed:
            return
        try:
            self._do(event(self._clock.monotonic_ms()))
        except (RaftError, KafkaError, OSError, ProtocolError, ValueError) as error:
            self.fail(error)

    def _do(self, out: Output) -> None:
        if out.hard_state is not None:
            self._persist(out.hard_state)
        for reply in out.replies:
            if not reply.token.done():
                reply.token.set_result(reply.response)
        for send in out.sends:
            self._peers.send(send, self.node.timeouts.request_ms / 1000 + _PEER_GRACE_S)
        if out.flush is not None:
            self._flushes.request(out.flush)
        self._arm(out.deadline_ms)
        if out.role_changed:
            logger.info("quorum: node %d is %s of epoch %d, leader %s", self.node_id, self.node.role.name, self.epoch,
                        "unknown" if self.leader_id is None else self.leader_id)  # fmt: skip
            self._check_resigned()
            self._changes.tell()
            if self.leader_id is not None:
                for listener in self.leader_listeners:
                    listener()
        if out.high_watermark is not None:
            self._committed(out.high_watermark)
        self._check_leading()

    def _persist(self, state: HardState) -> None:
        kept = QuorumState.of(state, self.voter_ids)
        write_quorum_state(self.log.files, self.log.directory, kept, min(self.kraft_version, 1))

    def _arm(self, deadline_ms: int) -> None:
        if self._timer is not None:
            if deadline_ms == self._timer_at_ms:
                return
            self._timer.cancel()
        delay_ms = min(max(deadline_ms - self._clock.monotonic_ms(), 0), 3_600_000)
        self._timer_at_ms = deadline_ms
        self._timer = self._loop.call_later(delay_ms / 1000 + 0.0005, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._event(self.node.tick)

    # -- peers

    def peer_answered(self, node_id: int, correlation_id: int, response: Any) -> None:
        self._event(lambda now_ms: self.node.response(node_id, correlation_id, response, now_ms))

    def peer_failed(self, node_id: int, correlation_id: int, error: ErrorCode) -> None:
        self._event(lambda now_ms: self.node.failed(node_id, correlation_id, error, now_ms))

    def peer_refused(self) -> None:
        """Whoever waits for a majority may have to give up."""
        self._changes.tell()

    def handle(self, request: Any, version: int, listener: str) -> asyncio.Future[Any]:
        """The answer to a request of a peer, or of an operator about the voters."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._event(lambda now_ms: self.node.request(future, request, version, listener or self._listener_name, now_ms))
        if (self._failure is not None or self._closed) and not future.done():
            future.set_exception(KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "this node takes no part in the quorum"))
        return future

    @property
    def _listener_name(self) -> str:
        return self.node.settings.listener

    def leader_unreachable(self, leader_id: int) -> None:
        """There is evidence that the leader's process has gone."""
        self._event(lambda now_ms: self.node.leader_unreachable(leader_id, now_ms))

    # -- append and commit

    def append(self, records: Sequence[VersionedRecord], *, atomic: bool = True) -> int:
        """Appends records and returns the offset of the last; `committed()` tells when it counts. Atomic records share
        one batch, so a crash keeps all of them or none."""
        if self._failure is not None:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the metadata log failed and takes no more records")
        epoch = self._led_epoch
        if epoch is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this node is not the active controller")
        if not records:
            raise ValueError("nothing to append")
        now_ms = self._clock.now_ms()
        step = len(records) if atomic else RECORDS_PER_BATCH
        for start in range(0, len(records), step):
            batch = metadata_batch(
                records[start : start + step], base_offset=self.end_offset, epoch=epoch, timestamp_ms=now_ms
            )
            if len(batch) > BATCH_BYTES_MAX:
                raise KafkaError(
                    ErrorCode.POLICY_VIOLATION, f"a metadata batch of {len(batch)} bytes is over {BATCH_BYTES_MAX}"
                )
            self._write(batch, epoch)
        return self.end_offset - 1

    def _write(self, batch: bytearray, epoch: int) -> None:
        try:
            out = self.node.append(batch, epoch, self._clock.monotonic_ms())
        except NotLeader:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this node is not the active controller") from None
        except (KafkaError, OSError) as error:
            if not (isinstance(error, LogFull) and self.is_only_voter):
                # Another voter may have a disk that works: the lead is free as soon as this node is gone.
                self.fail(error)
            raise
        self.snapshots.count(batch)
        self._do(out)

    def committed(self, offset: int) -> asyncio.Future[None]:
        """Done when everything up to and including `offset` is committed; fails when it never will be."""
        if self._failure is None and self._led_epoch is not None and offset >= self.committed_offset:
            return self._waiting.wait(offset)
        future: asyncio.Future[None] = self._loop.create_future()
        if self._failure is not None:
            future.set_exception(self._failure)
        elif offset < self.committed_offset:
            future.set_result(None)
        else:
            future.set_exception(_not_controller())
        return future

    def _committed(self, high_watermark: int) -> None:
        self.log.log.high_watermark = min(high_watermark, self.log.end_offset)
        self._stream.deliver(high_watermark)
        if self._led_epoch is None and self._state is not None and self.snapshot_due():
            self.start_snapshot(self._state.image)
        self._waiting.reached(high_watermark)
        self._changes.tell()

    def _passed(self, data: bytes) -> None:
        """Counts what the next snapshot will have to stand for, of records that others appended."""
        if self._led_epoch is None:
            self.snapshots.count(data)

    def subscribe(self, subscriber: MetadataSubscriber) -> None:
        """Hands over all that is known to be committed, and from then on every commit."""
        self._stream.subscribe(subscriber)

    def hand_over(self, subscriber: MetadataSubscriber) -> None:
        """Everything that is committed once more, for a subscriber that starts over."""
        self._stream.hand_over(subscriber)

    # -- leadership

    def _check_leading(self) -> None:
        role = self.node.role
        if self._led_epoch is None and isinstance(role, Leader) and role.high_watermark is not None:
            self._led_epoch = role.epoch
            if self._listener is not None:
                self._listener.lead(role.epoch)

    def _check_resigned(self) -> None:
        if self._led_epoch is None or (self.node.is_leader and self.node.epoch == self._led_epoch):
            return
        self._led_epoch = None
        self._waiting.fail(_not_controller())
        if self._listener is not None:
            self._listener.resign()

    def changed(self) -> asyncio.Future[None]:
        """Done at the next change of role, epoch, leader or high watermark."""
        return self._changes.wait()

    def fail(self, error: BaseException) -> None:
        """This node's part in the quorum ends here."""
        if self._failure is not None:
            return
        self._failure = error
        logger.error("the metadata log failed: %s", error)
        if self._timer is not None:
            self._timer.cancel()
        self._waiting.fail(KafkaError(ErrorCode.NOT_CONTROLLER, "the controller lost its metadata log"))
        if self._listener is not None:
            self._listener.failed(error)
        self._on_failure(error)

    # -- snapshots

    def snapshot_due(self) -> bool:
        return self._failure is None and self.snapshots.due()

    def start_snapshot(self, image: ClusterImage) -> None:
        """Writes a snapshot of `image` as it is now, once what it contains is committed."""
        self.snapshots.start(image, self.node.membership, self.committed, self._workers)

    def _snapshot_written(self, snapshot_id: SnapshotId) -> None:
        self.node.snapshot_created(OffsetAndEpoch(snapshot_id.offset, snapshot_id.epoch))

    # -- end

    async def close(self) -> None:
        """Hands the lead over if there is somebody to take it, and waits for what is under way; all that was appended
        is durable afterwards. A snapshot is left behind when the next start would otherwise have much to replay."""
        self._stopping = True
        await self._hand_lead_over()
        await self._flushes.drain()
        snapshots = self.snapshots
        if (
            self._state is not None
            and self._failure is None
            and snapshots.task is None
            and snapshots.bytes_since >= SNAPSHOT_AT_STOP_BYTES
        ):
            self.start_snapshot(self._state.image)
        if snapshots.task is not None:
            await asyncio.wait([snapshots.task])
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._peers.close()
        self._disk.abandon_snapshot()
        if self._failure is None:
            try:
                self.log.close()
            except OSError as error:
                if error.errno not in DISK_FULL_ERRORS:
                    raise
                logger.warning("the metadata log is left for the next start to recover: %s", error)

    async def _hand_lead_over(self) -> None:
        if self._failure is not None or not self.node.is_leader or self.is_only_voter:
            return
        # Nobody with a shorter log could win our vote, and we will not run again.
        await self._until(lambda: self.committed_offset >= self.end_offset or self.majority_is_down, CATCH_UP_S)
        self._event(self.node.shutdown)
        if not await self._until(lambda: self.node.shutdown_complete or self.majority_is_down, HANDOVER_S):
            logger.warning("no other voter took the lead within %.0f s", HANDOVER_S)

    async def _until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """False when it takes too long, or never will be."""
        await self._changes.until(lambda: condition() or self._failure is not None, timeout_s)
        return condition()

    def upgrade_kraft_version(self, version: int, *, validate_only: bool = False) -> None:
        """From static to dynamic voters, once every voter has said that it can. KafkaError when it cannot be."""
        now_ms = self._clock.monotonic_ms()
        changes.upgrade(self.node, version, now_ms, validate_only=validate_only)
        self._event(self.node.tick)


def _not_controller() -> KafkaError:
    return KafkaError(ErrorCode.NOT_CONTROLLER, "the lead was lost before this was committed")
