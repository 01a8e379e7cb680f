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
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from pylogd.controller.bootstrap import activation_records
from pylogd.controller.decide import (
    brokers,
    configs,
    directories,
    elections,
    features,
    isr_proposals,
    producer_id_blocks,
    quorum_description,
    reassignments,
    topics,
)
from pylogd.controller.driver import QuorumDriver
from pylogd.controller.fencing_evidence import FencingEvidence, FencingSettings
from pylogd.controller.heartbeats import Heartbeats
from pylogd.controller.raft.log_view import LogFull
from pylogd.controller.state import ConfigRules, ControllerState, Decision, Settings
from pylogd.metadata import feature_levels
from pylogd.metadata.image import ClusterImage
from pylogd.metadata.record_batches import VersionedRecord, decode_batches
from pylogd.metadata.registrations import Endpoint
from pylogd.metadata.snapshot import SnapshotContents, SnapshotId, replay_steps
from pylogd.protocol.api import ApiKey
from pylogd.protocol.errors import ErrorCode, KafkaError, ProtocolError
from pylogd.protocol.failures import error_response
from pylogd.rpc.caller import Caller
from pylogd.runtime.clock import Clock

if TYPE_CHECKING:
    from pylogd.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest

logger = logging.getLogger(__name__)

UNCLEAN_ELECTION_INTERVAL_MS = 5 * 60 * 1000
#: How long a turn of the event loop may be spent on replaying metadata.
SLICE_SECONDS = 0.005
#: Between two parts of a job that is done in parts.
TURN_SECONDS = 0.01

#: What the controller answers, here and on its listener, by first and last version.
SERVED: dict[ApiKey, tuple[int, int]] = {
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.DELETE_TOPICS: (1, 6),
    ApiKey.CREATE_PARTITIONS: (0, 3),
    ApiKey.ALTER_CONFIGS: (0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ApiKey.ELECT_LEADERS: (0, 2),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
    ApiKey.UPDATE_FEATURES: (0, 2),
    ApiKey.ALTER_PARTITION: (2, 3),
    ApiKey.BROKER_REGISTRATION: (0, 4),
    ApiKey.BROKER_HEARTBEAT: (0, 2),
    ApiKey.UNREGISTER_BROKER: (0, 0),
    ApiKey.CONTROLLER_REGISTRATION: (0, 0),
    ApiKey.ALLOCATE_PRODUCER_IDS: (0, 0),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: (0, 0),
    ApiKey.DESCRIBE_QUORUM: (0, 2),
    ApiKey.DESCRIBE_CLUSTER: (0, 2),
    ApiKey.VOTE: (0, 2),
    ApiKey.BEGIN_QUORUM_EPOCH: (0, 1),
    ApiKey.END_QUORUM_EPOCH: (0, 1),
    ApiKey.FETCH: (4, 18),
    ApiKey.FETCH_SNAPSHOT: (0, 1),
    ApiKey.ADD_RAFT_VOTER: (0, 1),
    ApiKey.REMOVE_RAFT_VOTER: (0, 0),
    ApiKey.UPDATE_RAFT_VOTER: (0, 0),
}
#: Answered by the quorum itself, whoever leads.
QUORUM_APIS = frozenset(
    {
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.FETCH,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
        ApiKey.UPDATE_RAFT_VOTER,
    }
)
#: Answered by every controller from what it knows.
STANDBY_APIS = frozenset({ApiKey.DESCRIBE_QUORUM, ApiKey.DESCRIBE_CLUSTER})


#: A broker that asks the controller of its own process.
NOBODY = Caller()


class ControllerContext:
    """Who asks. A request that a broker passes on for a client is `forwarded`, and the caller is the client;
    `connection` stands for what carried the request, if the end of that would mean something."""

    __slots__ = ("caller", "connection", "forwarded")

    def __init__(self, caller: Caller = NOBODY, *, forwarded: bool = False, connection: Hashable | None = None) -> None:
        self.caller = caller
        self.forwarded = forwarded
        self.connection = connection


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
        #: committed records that are still to be replayed
        self._steps: deque[Iterator[None]] = deque()
        self._replaying: asyncio.Task[None] | None = None
        self._activated: asyncio.Future[None] = loop.create_future()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._evidence: FencingEvidence | None = None
        if fencing is not None:
            self._evidence = FencingEvidence(
                fencing, self.state, loop, is_active=lambda: self.active, gone=self.broker_gone
            )
        self._handlers: dict[int, Callable[[Any, int, ControllerContext], Decision]] = {
            ApiKey.CREATE_TOPICS: lambda r, v, c: topics.create_topics(self.state, r, v),
            ApiKey.DELETE_TOPICS: lambda r, v, c: topics.delete_topics(self.state, r, v),
            ApiKey.CREATE_PARTITIONS: lambda r, v, c: topics.create_partitions(self.state, r),
            ApiKey.ALTER_CONFIGS: lambda r, v, c: configs.alter_configs(self.state, r, c.forwarded),
            ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda r, v, c: configs.incremental_alter_configs(
                self.state, r, c.forwarded
            ),
            ApiKey.ELECT_LEADERS: lambda r, v, c: elections.elect_leaders(self.state, r, v),
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda r, v, c: reassignments.alter_partition_reassignments(
                self.state, r, v
            ),
            ApiKey.LIST_PARTITION_REASSIGNMENTS: lambda r, v, c: reassignments.list_partition_reassignments(
                self.state, r
            ),
            ApiKey.UPDATE_FEATURES: lambda r, v, c: features.update_features(self.state, r, v),
            ApiKey.ALTER_PARTITION: lambda r, v, c: isr_proposals.alter_partition(self.state, r, v),
            ApiKey.BROKER_REGISTRATION: lambda r, v, c: brokers.register_broker(
                self.state, r, v, self._clock.monotonic_ms()
            ),
            ApiKey.UNREGISTER_BROKER: lambda r, v, c: brokers.unregister_broker(self.state, r),
            ApiKey.CONTROLLER_REGISTRATION: lambda r, v, c: brokers.register_controller(self.state, r),
            ApiKey.ALLOCATE_PRODUCER_IDS: lambda r, v, c: producer_id_blocks.allocate_producer_ids(self.state, r),
            ApiKey.ASSIGN_REPLICAS_TO_DIRS: lambda r, v, c: directories.assign_replicas_to_dirs(self.state, r),
            ApiKey.DESCRIBE_QUORUM: lambda r, v, c: quorum_description.describe_quorum(self.driver, r, v),
            ApiKey.DESCRIBE_CLUSTER: lambda r, v, c: quorum_description.describe_cluster(
                self.driver, self.state, r, v, c.caller.listener
            ),
        }

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
        self._steps.clear()
        image = self.state.image = ClusterImage()
        self._replay_soon(replay_steps(data, image, snapshot_id, SnapshotContents()))

    def committed(self, batches: Sequence[bytes | bytearray]) -> None:
        """Records of the active controller. What this one appended itself is replayed already."""
        if not self._leading:
            for data in batches:
                self._replay_soon(self._replay(data))

    def _replay(self, data: bytes | bytearray) -> Iterator[None]:
        image = self.state.image
        for batch in decode_batches(data):
            image.epoch = batch.epoch
            if batch.control:
                image.offset = batch.last_offset
            else:
                for offset, record in enumerate(batch.records, batch.base_offset):
                    image.replay(record, offset)
            yield

    def _replay_soon(self, steps: Iterator[None]) -> None:
        """At once when it is little; otherwise in slices, since a broker may share this event loop."""
        self._steps.append(steps)
        if self._replaying is None and not self._run_steps(SLICE_SECONDS):
            self._replaying = self._loop.create_task(self._run_all_steps())

    def _run_steps(self, seconds_max: float) -> bool:
        """True when nothing is left to replay."""
        time = self._loop.time
        deadline = time() + seconds_max
        while self._steps:
            for _ in self._steps[0]:
                if time() >= deadline:
                    return False
            self._steps.popleft()
        return True

    async def _run_all_steps(self) -> None:
        try:
            while not self._run_steps(SLICE_SECONDS):
                await asyncio.sleep(0)
        except (KafkaError, ProtocolError, ValueError) as error:
            self.driver.fail(error)
        finally:
            self._replaying = None

    def lead(self, epoch: int) -> None:
        """This controller is the active one now; writes what a new cluster or a new controller needs."""
        try:
            self._lead()
        except Exception as error:
            self.failed(error)
            raise

    def _lead(self) -> None:
        state, driver = self.state, self.driver
        self._run_steps(float("inf"))
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
                return self._handlers[key](request, version, context).response
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
        key = request.API_KEY
        if key == ApiKey.BROKER_HEARTBEAT:
            return self._heartbeat(request)
        handler = self._handlers.get(key)
        if handler is None:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"the controller does not serve API {key}")
        decision = handler(request, version, context)
        if decision.kraft_version is not None:
            self.driver.upgrade_kraft_version(decision.kraft_version)
            state.kraft_version = self.driver.kraft_version
        return decision, self._write(decision)

    def _heartbeat(self, request: BrokerHeartbeatRequest) -> tuple[Decision, int]:
        heartbeats = self.state.heartbeats
        heartbeats.touch(request.broker_id, request.broker_epoch, self._clock.monotonic_ms())
        decision, shutting_down = brokers.heartbeat(self.state, request)
        offset = self._write(decision)
        heartbeats.heard(request.broker_id, request.current_metadata_offset)
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
