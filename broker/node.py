"""One node put together: a broker, a controller, or both in one process.

Start: directories are formatted and locked, listeners take their ports, the controller becomes active, the broker
registers and replays the metadata up to its registration, logs are recovered, replicas take their roles, clients are
let in, and the controller is told that this broker is ready. Stop is the same in reverse: leaderships are given up,
clients hung up on, logs flushed and marked clean; the controller goes last, because the broker needs it to leave.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from random import Random, SystemRandom
from typing import TYPE_CHECKING

from pylogd.broker.admin.config_listeners import BrokerConfigs, TopicConfigs
from pylogd.broker.admin.log_configs import LogConfigs
from pylogd.broker.admin.telemetry import ClientTelemetry
from pylogd.broker.admin.topic_creation import TopicCreation
from pylogd.broker.cluster import controller_listener
from pylogd.broker.cluster.controller_assembly import (
    broker_endpoints,
    build_controller,
    build_driver,
    controller_endpoints,
)
from pylogd.broker.cluster.formatting import Directories, Formatter
from pylogd.broker.cluster.joining import Unformatted, find_cluster
from pylogd.broker.cluster.local_channel import LocalChannel
from pylogd.broker.cluster.producer_ids import ProducerIds
from pylogd.broker.cluster.publisher import MetadataPublisher
from pylogd.broker.cluster.registration import BrokerLifecycle, register_controller
from pylogd.broker.fetch.fetch_plan import FetchPlanner
from pylogd.broker.fetch.fetch_sessions import FetchSessions
from pylogd.broker.gate.gate import Gate
from pylogd.broker.handlers import SUPPORTED
from pylogd.broker.network.dispatch import Dispatcher
from pylogd.broker.network.server import Server
from pylogd.broker.replicas.directory_assignment import DirectoryAssignment
from pylogd.broker.replicas.hosted_replicas import HostedReplicas
from pylogd.broker.replicas.isr_changes import IsrChanges
from pylogd.broker.replicas.leaders import Leaders
from pylogd.broker.services import ControllerServices, Services
from pylogd.config.host import Host
from pylogd.config.listeners import Endpoint
from pylogd.coordinators.groups.group_coordinator import GroupCoordinator
from pylogd.coordinators.transactions.transaction_coordinator import TransactionCoordinator
from pylogd.coordinators.transactions.verifier import TransactionVerifier
from pylogd.metadata.image import ClusterImage
from pylogd.metadata.latest import LatestImage
from pylogd.protocol import uuids
from pylogd.replication.fetchers import Fetchers
from pylogd.replication.in_sync import Standing
from pylogd.replication.replicas import Replicas
from pylogd.rpc.broker_pool import Peers
from pylogd.rpc.controller_channel import LocalController, RoutedChannel
from pylogd.runtime.clock import Clock
from pylogd.runtime.files import FileSystem
from pylogd.runtime.network import Network
from pylogd.runtime.workers import Workers
from pylogd.storage.compaction.cleaner import CleanerConfig, LogCleaner
from pylogd.storage.directories.directory import LogDirectory, TopicPartition
from pylogd.storage.directories.log_manager import LogManager
from pylogd.storage.directories.manager_settings import ManagerSettings

if TYPE_CHECKING:
    from pylogd.config.broker import BrokerConfig
    from pylogd.controller.driver import QuorumDriver
    from pylogd.controller.service import Controller

logger = logging.getLogger(__name__)

#: How long a controller that has just joined waits for its place among the voters before it says that it is ready.
_VOTE_WAIT_S = 15


class Node:
    """Everything a handler may ask for. Attributes that only one role has are set by `start`."""

    controller: Controller
    driver: QuorumDriver
    channel: RoutedChannel
    lifecycle: BrokerLifecycle

    def __init__(
        self,
        config: BrokerConfig,
        *,
        files: FileSystem | None = None,
        clock: Clock | None = None,
        chance: Random | None = None,
        network: Network | None = None,
        workers: Workers | None = None,
    ) -> None:
        """What is not given is the real one; the simulator gives everything."""
        self.config = config
        self.broker_id = config.node_id
        self.cluster_id = ""
        self.loop = asyncio.get_running_loop()
        self.files = files or FileSystem()
        self.clock = clock or Clock()
        self.chance = chance or SystemRandom()
        self.workers = workers or Workers(self.loop)
        self.network = network or Network(
            self.loop,
            self.workers,
            # Unless somebody asks for a size the kernel's own tuning stays: a third less CPU per byte produced.
            send_buffer_bytes=_asked(config, "socket.send.buffer.bytes"),
            receive_buffer_bytes=_asked(config, "socket.receive.buffer.bytes"),
        )
        self.host = Host(
            self.broker_id, config, self.loop, self.clock, self.chance, self.files, self.workers, self.network
        )
        self.metadata = LatestImage()
        self.server = Server(self.network, config)
        self.gate = Gate()
        #: What the controller's listeners serve with; the controller itself is there once the node is formatted.
        self.controller_services = ControllerServices(
            self.host, self.metadata, self._kraft_version, Unformatted(self.broker_id)
        )
        self.replicas = Replicas(
            self.broker_id,
            self.loop,
            clock=self.clock,
            standing=self.standing,
            lag_ms_max=config["replica.lag.time.max.ms"],
        )
        self.fetchers = Fetchers(self.host, self.metadata, lambda: self.broker_epoch)
        self.isr_changes = IsrChanges(self)
        self.replicas.propose = self.isr_changes.propose
        self.replicas.follower_flushed = self.fetchers.flushed
        self.sessions = FetchSessions(config["max.incremental.fetch.session.cache.slots"], self.clock, self.chance)
        self.producer_ids = ProducerIds(self)
        self.telemetry = ClientTelemetry(config, self.clock, self.chance, self.metadata)
        self.topic_creation = TopicCreation(self)
        self.publisher = MetadataPublisher(self.loop, self.metadata)
        metadata = self.metadata
        self.groups = GroupCoordinator(self.host, metadata, self.replicas)
        self.transactions = TransactionCoordinator(
            self.host,
            metadata,
            self.replicas,
            producer_ids=self.producer_ids,
            offsets=self.groups.shards,
            peers=Peers(self.host, metadata.address, "markers"),
        )
        self.verifier = TransactionVerifier(
            self.host, metadata, self.transactions, Peers(self.host, metadata.address, "add-partitions")
        )
        self._log_configs = LogConfigs(config, metadata)
        self.logs = LogManager(
            self.loop,
            self.files,
            self.clock,
            self.workers,
            config.log_dirs,
            settings=ManagerSettings.from_values(config),
            config_for=self._log_configs.of,
            chance=self.chance,
            on_directory_failure=self._directory_failed,
        )
        self.cleaner = LogCleaner(
            self.logs.loaded, self.files, self.clock, self.workers, CleanerConfig.from_values(config)
        )
        self.logs.truncation_listeners.append(self.cleaner.truncated)
        config.subscribe(self._config_changed)
        #: Done when the node cannot go on; whoever runs it stops it then.
        self.failure: asyncio.Future[str] = self.loop.create_future()
        self._started: list[str] = []
        self._registering: asyncio.Task[None] | None = None

    @property
    def image(self) -> ClusterImage:
        """The committed metadata as this broker has it."""
        return self.metadata.image

    @property
    def broker_epoch(self) -> int:
        return self.lifecycle.epoch

    @property
    def incarnation_id(self) -> bytes | None:
        """Under which this process registers its broker; None before it does."""
        return self.lifecycle.incarnation_id if hasattr(self, "lifecycle") else None

    def standing(self, broker_id: int) -> Standing | None:
        """How the metadata sees a broker; None unless it is alive. What this broker is, it knows itself."""
        if broker_id == self.broker_id:
            return Standing(self.broker_epoch, True)
        broker = self.image.brokers.get(broker_id)
        return None if broker is None or broker.fenced else Standing(broker.epoch, broker.is_active)

    def _kraft_version(self) -> int:
        return self.driver.kraft_version if hasattr(self, "driver") else 1

    @property
    def endpoints(self) -> list[Endpoint]:
        """The listeners as they are bound, with the ports they got."""
        return [Endpoint(bound.name, bound.host, bound.port) for bound in self.server.listeners.values()]

    # -- start

    async def start(self) -> None:
        """Returns when clients are served."""
        config = self.config
        formatter = Formatter(config, self.files, self.clock, self.chance.randbytes)
        self._bind()
        joined = False
        if not formatter.found and not formatter.is_alone() and not (config.is_controller and config.voters):
            await self._join_cluster(formatter)
            joined = True
        directories = formatter.prepare()
        self.cluster_id = directories.cluster_id
        for path, reason in directories.failed.items():
            logger.error("log directory %s is offline: %s", path, reason)
        self.logs.open()
        self._started.append("logs")
        if config.is_controller:
            await self._start_controller(directories)
        else:
            self._observe(directories)
        if config.is_broker:
            await self._start_broker()
        if config.is_controller and joined:
            await self._await_vote()

    def _bind(self) -> None:
        """Take the ports before anything is written: a port in use is the most common reason of a failed start."""
        config = self.config
        for endpoint in config.controller_listeners:
            self.server.bind(endpoint, privileged=True)
        if config.is_broker:
            between_brokers = config.inter_broker_listener_name
            listeners = config.broker_listeners
            for endpoint in listeners:
                # A listener that clients use too must not escape the limits that protect the broker from them.
                privileged = endpoint.name == between_brokers and len(listeners) > 1
                self.server.bind(endpoint, privileged=privileged)
        self._started.append("server")

    async def _start_controller(self, directories: Directories) -> None:
        config = self.config
        bound = {name: listener.port for name, listener in self.server.listeners.items()}
        endpoints = controller_endpoints(config, socket.gethostname(), bound)
        self.controller = build_controller(
            config,
            cluster_id=self.cluster_id,
            directory_id=directories.ids[config.metadata_log_dir],
            endpoints=endpoints,
            files=self.files,
            clock=self.clock,
            loop=self.loop,
            workers=self.workers,
            network=self.network,
            rng=self.chance,
            new_uuid=self._new_uuid,
            on_failure=self._quorum_failed,
            own_incarnation_id=lambda: self.incarnation_id,
        )
        driver = self.driver = self.controller.driver
        self.controller_services.controller = self.controller
        self.server.connection_listeners.append(self.controller.connection_closed)
        self._started.append("controller")
        await self.controller.start()
        # The other voters must be able to ask for votes before there can be a leader to register with.
        self._serve_controller()
        driver.subscribe(self.publisher)
        self.channel = self._route(lambda: driver.leader_address, LocalChannel(self.controller))
        self._started.append("channel")
        registering = register_controller(self.channel, config.node_id, self._new_uuid(), endpoints)
        if driver.is_leader:
            await registering
        else:
            self._registering = self.loop.create_task(registering)

    def _route(self, find: Callable[[], tuple[str, int] | None], local: LocalController | None = None) -> RoutedChannel:
        """The way to the active controller, which may be in this process."""
        config = self.config
        return RoutedChannel(
            self.network,
            find=find,
            bootstrap=self._controllers(),
            local=local,
            client_id=f"broker-{config.node_id}",
            timeout_s=config["controller.socket.timeout.ms"] / 1000,
            heartbeat_timeout_s=config["broker.session.timeout.ms"] / 4000,
        )

    async def _join_cluster(self, formatter: Formatter) -> None:
        """Format an empty node as part of the cluster it is told to use, or found that cluster."""
        config = self.config
        if config.is_controller:
            self._serve_controller()
        cluster_id = await find_cluster(self.network, config.node_id, self._controllers())
        if cluster_id:
            formatter.format(cluster_id, None)
        else:
            formatter.format(formatter.new_id_text(), [formatter.standalone_voter()])
            logger.info("no listed controller belongs to a cluster: node %d founds one", config.node_id)
        formatter.reload()

    def _serve_controller(self) -> None:
        dispatcher = Dispatcher(self.controller_services, controller_listener.supported(), self.gate)
        for endpoint in self.config.controller_listeners:
            listener = self.server.listeners[endpoint.name]
            if not listener.started:
                listener.start(dispatcher)

    async def _await_vote(self) -> None:
        """A new controller is ready when it votes: until then the cluster cannot do without those that already do."""
        for _ in range(_VOTE_WAIT_S * 20):
            if self.driver.is_voter:
                return
            await asyncio.sleep(0.05)
        logger.warning("this controller does not vote yet; the quorum is %s", self.driver.voter_ids)

    def _controllers(self) -> list[tuple[str, int]]:
        """Where controllers may be found."""
        return self.config.bootstrap_servers or list(self.config.voters.values())

    def _observe(self, directories: Directories) -> None:
        """Follow the metadata of controllers elsewhere."""
        config = self.config
        self.driver = build_driver(
            config,
            cluster_id=self.cluster_id,
            directory_id=directories.ids[config.metadata_log_dir],
            endpoints=[],
            files=self.files,
            clock=self.clock,
            loop=self.loop,
            workers=self.workers,
            rng=self.chance,
            on_failure=self._quorum_failed,
            network=self.network,
        )
        self.channel = self._route(lambda: self.driver.leader_address)
        self._started.append("channel")
        self.driver.subscribe(self.publisher)
        self.driver.start(state=self.publisher)
        self._started.append("observer")

    async def _start_broker(self) -> None:
        config = self.config
        bound = {name: listener.port for name, listener in self.server.listeners.items()}
        stopped_epochs = [directory.stopped_broker_epoch for directory in self.logs.directories if directory.online]
        self.lifecycle = BrokerLifecycle(
            self,
            incarnation_id=self._new_uuid(),
            endpoints=broker_endpoints(config, socket.gethostname(), bound),
            previous_epoch=min(stopped_epochs, default=-1),
        )
        self.driver.leader_listeners.append(self.lifecycle.controller_changed)
        await self.lifecycle.register()
        await self.publisher.reached(self.lifecycle.epoch)
        await self.logs.recover()
        await self._apply_metadata()
        self._started.append("broker")
        self.logs.start()
        self.cleaner.start()
        self.isr_changes.start()
        self.server.start(Dispatcher(self._services(), SUPPORTED, self.gate))
        await self.lifecycle.unfence()

    async def _apply_metadata(self) -> None:
        """Returns when this broker's replicas have their roles. Listeners are told in this order."""
        host, metadata, logs = self.host, self.metadata, self.logs
        broker_configs = BrokerConfigs(host, metadata, logs, self._log_configs)
        self.assignment = DirectoryAssignment(host, self.channel, self.lifecycle.current_epoch)
        hosted_replicas = HostedReplicas(
            self.broker_id, metadata, logs, self.replicas, self.fetchers, self.cleaner, self.assignment
        )
        topic_configs = TopicConfigs(metadata, logs, self._log_configs)
        broker_configs.take_effect()
        hosted_replicas.put_strays_aside()
        await self.publisher.start(
            [
                # New logs are made with the settings that hold now.
                broker_configs,
                # Before partitions come to fetchers, these know where the leaders are.
                self.fetchers,
                # A leadership that is won or lost the partition itself tells its coordinator, in the same step: a shard
                # that is led no longer must not answer until its listener's turn has come.
                hosted_replicas,
                topic_configs,
                # Their shards are those of the roles that the replicas have now.
                self.groups,
                self.transactions,
                self.lifecycle,
            ]
        )

    def _services(self) -> Services:
        leaders = Leaders(self.broker_id, self.metadata, self.replicas, self.logs)
        return Services(
            self.host,
            self.metadata,
            self._kraft_version,
            cluster_id=self.cluster_id,
            channel=self.channel,
            logs=self.logs,
            replicas=self.replicas,
            leaders=leaders,
            planner=FetchPlanner(self.broker_id, self.metadata, self.replicas, leaders),
            sessions=self.sessions,
            groups=self.groups,
            transactions=self.transactions,
            verifier=self.verifier,
            producer_ids=self.producer_ids,
            topic_creation=self.topic_creation,
            telemetry=self.telemetry,
        )

    # -- stop

    async def stop(self) -> None:
        """Leave in good order. After a start that failed half-way only what was started is stopped."""
        started, self._started = self._started, []
        if "broker" in started:
            timeout_s = self.config["broker.session.timeout.ms"] / 1000
            await self.lifecycle.controlled_shutdown(timeout_s)
        if "server" in started:
            # A controller that leads hands over first; its successor needs its vote.
            self.server.close_except(self.config.controller_listener_names)
        if "broker" in started:
            self.verifier.close()
            await self.transactions.close()
            await self.groups.close()
            self.fetchers.close()
            await self.isr_changes.stop()
            await self.cleaner.close()
            await self.publisher.stop()
            await self.assignment.stop()
            await self.lifecycle.stop()
        if "controller" in started:
            if self._registering is not None:
                self._registering.cancel()
            await self.controller.stop()
        if "observer" in started:
            await self.driver.close()
        if "server" in started:
            self.server.close()
        if "channel" in started:
            self.channel.close()
        if "logs" in started:
            if "broker" in started:
                await self.logs.close(self.broker_epoch)
            else:
                self.logs.abandon()
        self.network.close()
        self.workers.close()

    # -- what goes wrong, what changes

    def _fail(self, reason: str) -> None:
        if not self.failure.done():
            logger.critical("this node cannot go on: %s", reason)
            self.failure.set_result(reason)

    def _quorum_failed(self, error: BaseException) -> None:
        self._fail(f"the metadata log failed: {error}")

    def _directory_failed(self, directory: LogDirectory, lost: list[TopicPartition]) -> None:
        self.replicas.directory_failed(lost)
        for topic, index in lost:
            partition = self.replicas.get(topic, index)
            if partition is not None:
                self.fetchers.update(partition)
        if directory.path == self.config.metadata_log_dir:
            self._fail(f"the metadata directory {directory.path} is offline")
        elif not any(other.online for other in self.logs.directories):
            self._fail("no log directory is left")
        elif directory.id is not None and "broker" in self._started:
            self.lifecycle.directory_failed(directory.id)

    def _config_changed(self, names: frozenset[str]) -> None:
        if any(name.startswith("log.cleaner.") for name in names):
            self.cleaner.reconfigure(CleanerConfig.from_values(self.config))
        if "num.replica.fetchers" in names:
            self.fetchers.resize(self.config["num.replica.fetchers"])
        if "cordoned.log.dirs" in names and "broker" in self._started:
            self.lifecycle.config_changed()

    def _new_uuid(self) -> bytes:
        """A random (version 4) id that is not one of Kafka's reserved ones."""
        return uuids.version_4(self.chance.randbytes(16))


def _asked(config: BrokerConfig, key: str) -> int:
    """A size somebody has set, or -1."""
    return config[key] if config.is_set(key) else -1
