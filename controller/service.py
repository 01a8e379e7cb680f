"""The active controller: requests in, decisions appended, replies out when what they saw is committed.

Everything runs on one event loop, one decision at a time. A decision sees the state as of the last appended record
("speculative"), so a second CreateTopics does not wait for the first one's fsync; every reply, a refusal too, waits
until the newest record the decision may have seen is committed. When the lead is lost the state is discarded and built
anew from the committed log, which a controller that does not lead keeps following. When the log fails, nothing is
answered any more and the node stops: what was replayed may not survive.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from pylogd.controller.bootstrap import activation_records
from pylogd.controller.committed_replay import CommittedReplay
from pylogd.controller.decide import brokers, elections
from pylogd.controller.fencing_evidence import FencingEvidence, FencingSettings
from pylogd.controller.heartbeats import Heartbeats
from pylogd.controller.quorum.driver import QuorumDriver
from pylogd.controller.raft.log_view import LogFull
from pylogd.controller.served_apis import DECISIONS, QUORUM_APIS, STANDBY_APIS, Asked, ControllerContext
from pylogd.controller.state import ConfigRules, ControllerState, Decision, Settings
from pylogd.metadata import feature_levels
from pylogd.metadata.image import ClusterImage
from pylogd.metadata.record_batches import VersionedRecord
from pylogd.metadata.registrations import Endpoint
from pylogd.metadata.snapshot import SnapshotId
from pylogd.protocol.api import ApiKey
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.failures import error_response
from pylogd.runtime.clock import Clock

if TYPE_CHECKING:
    from pylogd.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest

logger = logging.getLogger(__name__)

UNCLEAN_ELECTION_INTERVAL_MS = 5 * 60 * 1000
#: Between two parts of a job that is done in parts.
TURN_SECONDS = 0.01


class Timings:
    """Intervals of the controller's own work."""

    __slots__ = ("balance_interval_ms", "idle_interval_ms", "session_timeout_ms")

    def __init__(
        self, idle_interval_ms: int = 500, session_timeout_ms: int = 9000, balance_interval_ms: int | None = 300_000
    ) -> None:
        self.idle_interval_ms = idle_interval_ms
        self.session_timeout_ms = session_timeout_ms
        #: None when auto.leader.rebalance.enable is off
        self.balance_interval_ms = balance_interval_ms


class Controller:
    """One node's controller."""

    def __init__(
        self,
        driver: QuorumDriver,
        settings: Settings,
        rules: ConfigRules,
        *,
        bootstrap: list[VersionedRecord],
        endpoints: list[Endpoint],
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        rng: Random,
        new_uuid: Callable[[], bytes],
        timings: Timings | None = None,
        local_broker: bool = False,
        fencing: FencingSettings | None = None,
    ) -> None:
        """Without `fencing` a broker is fenced only when its session has run out."""
        self.driver = driver
        self.endpoints = endpoints
        self._bootstrap = bootstrap
        self._clock = clock
        self._loop = loop
        self._timings = timings or Timings()
        self._local_broker = local_broker
        heartbeats = Heartbeats(self._timings.session_timeout_ms)
        self.state = ControllerState(ClusterImage(), heartbeats, settings, rules, rng, new_uuid)
        self.state.check_kraft_upgrade = lambda version: driver.upgrade_kraft_version(version, validate_only=True)
        #: takes requests
        self.active = False
        #: owns the state: what it appends is replayed before it is committed
        self._leading = False
        self._stopping = False
        self._replay = CommittedReplay(loop, driver.fail)
        self._activated: asyncio.Future[None] = loop.create_future()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._evidence: FencingEvidence | None = None
        if fencing is not None:
            self._evidence = FencingEvidence(
                fencing, self.state, loop, is_active=lambda: self.active, gone=self.broker_gone
            )

    # -- life

    async def start(self) -> None:
        """Follows the log and takes part in the quorum. A controller that is alone in it is active when this returns;
        otherwise one of them becomes active sooner or later."""
        driver = self.driver
        driver.subscribe(self)
        driver.start(self, self.state)
        if driver.is_only_voter:
            await self._activated

    def load_snapshot(self, data: bytes, snapshot_id: SnapshotId) -> None:
        """The quorum hands over what is committed: from this snapshot on."""
        self.state.image = ClusterImage()
        self._replay.start_over(data, snapshot_id, self.state.image)

    def committed(self, batches: Sequence[bytes | bytearray]) -> None:
        """Records of the active controller. What this one appended itself is replayed already."""
        if not self._leading:
            for data in batches:
                self._replay.add(data, self.state.image)

    def lead(self, epoch: int) -> None:
        """This controller is the active one now; writes what a new cluster or a new controller needs."""
        try:
            self._lead()
        except Exception as error:
            self.failed(error)
            raise

    def _lead(self) -> None:
        state, driver = self.state, self.driver
        self._replay.finish()
        self._leading = True
        state.kraft_version = driver.kraft_version
        state.voters = driver.voter_ids
        # A broker that shares the process of the only controller cannot be running from before.
        gone = driver.node_id if self._local_broker and driver.is_only_voter else None
        state.heartbeats.activate(state.image, self._clock.monotonic_ms(), gone)
        if state.image.metadata_version > feature_levels.METADATA_LATEST:
            raise ValueError(
                f"the metadata log is at metadata.version {state.image.metadata_version}; this version of pylogd "
                f"supports up to {feature_levels.METADATA_LATEST}"
            )
        records = activation_records(state.image, self._bootstrap, state.settings.static_min_insync_replicas)
        if records:
            self._append(records, atomic=False)
        self.active = True
        timings = self._timings
        if timings.idle_interval_ms:
            self._every("no-op", timings.idle_interval_ms, self._write_no_op)
        self._every("fencing", max(timings.session_timeout_ms // 8, 1), self._fence_stale)
        if timings.balance_interval_ms:
            self._every("balance", timings.balance_interval_ms, self._balance)
        self._every("unclean", UNCLEAN_ELECTION_INTERVAL_MS, self._elect_unclean)
        logger.info("controller %d is active in epoch %d at offset %d", driver.node_id, driver.epoch, driver.end_offset)
        driver.committed(driver.end_offset - 1).add_done_callback(self._ready)
        if self._evidence is not None:
            self._evidence.activated(only_voter=driver.is_only_voter)

    def _ready(self, committed: asyncio.Future[None]) -> None:
        if committed.cancelled() or committed.exception() is not None:
            logger.info("controller %d lost the lead before its first records were committed", self.driver.node_id)
        elif not self._activated.done():
            self._activated.set_result(None)

    def resign(self) -> None:
        """Another controller is active now, or none: what was only appended here may be gone."""
        if not self._leading:
            return
        logger.info("controller %d is not active any more", self.driver.node_id)
        self._leading = self.active = False
        self._cancel_timers()
        self.state.image = ClusterImage()
        self.state.heartbeats.clear()
        if not self._stopping:
            self.driver.hand_over(self)

    def failed(self, error: BaseException) -> None:
        """The quorum cannot go on here."""
        self.active = False
        self._cancel_timers()
        if not self._activated.done():
            self._activated.set_exception(error)

    def _cancel_timers(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    async def stop(self) -> None:
        """Takes no more requests; what was appended is durable afterwards."""
        if self._evidence is not None:
            self._evidence.close()
        self.active = False
        self._stopping = True
        self._cancel_timers()
        await self.driver.close()

    def _every(self, name: str, interval_ms: int, job: Callable[[], None]) -> None:
        def run() -> None:
            if not self.active:
                return
            self._timers[name] = self._loop.call_later(interval_ms / 1000, run)
            self._attempt(name, job)

        self._timers[name] = self._loop.call_later(interval_ms / 1000, run)

    @staticmethod
    def _attempt(name: str, job: Callable[[], None]) -> None:
        try:
            job()
        except LogFull:
            logger.debug("controller task %s has to wait for room on the disk", name)
        except KafkaError as error:
            logger.warning("controller task %s failed: %s", name, error)

    # -- own work

    def _write_no_op(self) -> None:
        """A record now and then, so that everybody sees how far behind they are and time-based snapshots come."""
        from pylogd.protocol.messages.metadata_records import NoOpRecord

        self._append([(NoOpRecord(), 0)])

    def _fence_stale(self) -> None:
        """One broker at a time, so that each election sees the brokers fenced before it."""
        full: LogFull | None = None
        for broker_id, epoch in self.state.heartbeats.expired(self._clock.monotonic_ms()):
            try:
                self._fence(broker_id, epoch, "its session timed out")
            except LogFull as error:
                full = error  # there may be room for what the next one needs
        if full is not None:
            raise full
        if self.state.heartbeats.stop_awaiting(self._clock.monotonic_ms()):
            self._elect_unclean()

    def _fence(self, broker_id: int, epoch: int, reason: str) -> None:
        decision = brokers.fence_broker(self.state, broker_id, epoch)
        if decision.records:
            logger.info("fencing broker %d of epoch %d: %s", broker_id, epoch, reason)
            self._append(decision.records, atomic=False)
        self.state.heartbeats.forget_session(broker_id, epoch)

    def broker_gone(self, broker_id: int, epoch: int) -> None:
        """There is evidence that the process of that broker has ended."""
        if self.active:
            self._attempt("fast fencing", lambda: self._fence_gone(broker_id, epoch))

    def connection_closed(self, connection: Hashable) -> None:
        """What carried requests has ended; it may have carried a broker's heartbeats."""
        if self._evidence is not None:
            self._evidence.connection_closed(connection)

    def _fence_gone(self, broker_id: int, epoch: int) -> None:
        """Before its session runs out. An unclean election still waits as long as the session: a broker that comes back
        may have the records."""
        self.state.heartbeats.process_gone(broker_id, epoch, self._clock.monotonic_ms())
        self._fence(broker_id, epoch, "its process is gone")

    def _balance(self) -> None:
        self._elect_some("balance", elections.balance_leaders)

    def _elect_unclean(self) -> None:
        self._elect_some("unclean", elections.elect_unclean)

    def _elect_some(self, name: str, decide: Callable[[ControllerState], Decision]) -> None:
        """Elections of a bounded number of partitions; the rest follows in turns of its own, soon."""
        if not self.active:
            return
        decision = decide(self.state)
        if decision.records:
            self._append(decision.records, atomic=False)
        if decision.response:
            again = self._loop.call_later(TURN_SECONDS, self._attempt, name, lambda: self._elect_some(name, decide))
            self._timers[f"more {name}"] = again

    # -- requests

    def handle(self, request: Any, version: int, context: ControllerContext) -> Awaitable[Any]:
        """The response to a request of one of the SERVED APIs. Never raises KafkaError: that becomes a response."""
        if request.API_KEY == ApiKey.BROKER_HEARTBEAT and self._evidence is not None and context.connection is not None:
            self._evidence.heartbeat(context.connection, request.broker_id, request.broker_epoch)
        return self._handle(request, version, context)

    async def _handle(self, request: Any, version: int, context: ControllerContext) -> Any:
        try:
            key = ApiKey(request.API_KEY)
            if key in QUORUM_APIS:
                return await self.driver.handle(request, version, context.caller.listener)
            if key in STANDBY_APIS and not self.active:
                return self._decide(key, request, version, context).response
            if not self.active:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "The active controller is not known.")
            decision, offset = self.decide(request, version, context)
            if offset >= self.driver.committed_offset:
                await self.driver.committed(offset)
            return decision.response
        except KafkaError as error:
            return error_response(request, version, error.code, error.message)

    def decide(self, request: Any, version: int, context: ControllerContext) -> tuple[Decision, int]:
        """Decides and appends at once; the decision and the offset its reply must wait for."""
        state = self.state
        state.next_offset = self.driver.end_offset
        key = ApiKey(request.API_KEY)
        if key is ApiKey.BROKER_HEARTBEAT:
            return self._heartbeat(request)
        decision = self._decide(key, request, version, context)
        if decision.kraft_version is not None:
            self.driver.upgrade_kraft_version(decision.kraft_version)
            state.kraft_version = self.driver.kraft_version
        return decision, self._write(decision)

    def _decide(self, key: ApiKey, request: Any, version: int, context: ControllerContext) -> Decision:
        decision = DECISIONS.get(key)
        if decision is None:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"the controller does not serve API {key}")
        return decision(Asked(self.state, self.driver, request, version, context, self._clock.monotonic_ms()))

    def _heartbeat(self, request: BrokerHeartbeatRequest) -> tuple[Decision, int]:
        heartbeats = self.state.heartbeats
        heartbeats.touch(request.broker_id, request.broker_epoch, self._clock.monotonic_ms())
        decision, shutting_down = brokers.heartbeat(self.state, request)
        offset = self._write(decision)
        # As in Kafka, a broker that was just written about has seen nothing until its next heartbeat.
        heartbeats.heard(request.broker_id, -1 if decision.records else request.current_metadata_offset)
        if shutting_down:
            heartbeats.begin_shutdown(request.broker_id, offset)
        return decision, offset

    def _write(self, decision: Decision) -> int:
        """The offset of the newest record the decision may have seen, its own included."""
        if decision.records:
            return self._append(decision.records, atomic=decision.atomic)
        return self.driver.end_offset - 1

    def _append(self, records: list[VersionedRecord], *, atomic: bool = True) -> int:
        """Appends and replays; the state and the log move together."""
        base_offset = self.driver.end_offset
        image = self.state.image
        try:
            last = self.driver.append(records, atomic=atomic)
        except KafkaError:
            if self.state.image is image:
                # Of records that need not be atomic some may have been written.
                self._replay_own(records[: self.driver.end_offset - base_offset], base_offset)
            raise
        if self.state.image is not image:
            # The append was the moment to notice that the lead is lost: the state has begun anew without these records.
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "the lead was lost before this was committed")
        self._replay_own(records, base_offset)
        if self.driver.snapshot_due():
            self.driver.start_snapshot(image)
        return last

    def _replay_own(self, records: list[VersionedRecord], base_offset: int) -> None:
        self.state.replay(records, base_offset)
        self.state.image.epoch = self.driver.epoch
