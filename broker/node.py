"""One node put together: a broker, a controller, or both in one process.

Start: directories are formatted and locked, listeners take their ports, the controller becomes active or the metadata
of one elsewhere is followed, and the broker joins and serves. `Stage` says in which order what was started stops.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from enum import IntEnum
from random import Random, SystemRandom
from typing import TYPE_CHECKING

from pylogd.broker.admin.log_configs import LogConfigs
from pylogd.broker.broker_role import BrokerRole
from pylogd.broker.cluster import controller_listener
from pylogd.broker.cluster.controller_assembly import build_driver
from pylogd.broker.cluster.formatting import Directories, Formatter
from pylogd.broker.cluster.joining import Unformatted, find_cluster
from pylogd.broker.cluster.publisher import MetadataPublisher
from pylogd.broker.controller_role import ControllerRole
from pylogd.broker.gate.gate import Gate
from pylogd.broker.network.dispatch import Dispatcher
from pylogd.broker.network.server import Server
from pylogd.broker.services import ControllerServices
from pylogd.config.host import Host
from pylogd.config.listeners import Endpoint
from pylogd.metadata.latest import LatestImage
from pylogd.rpc.controller_channel import LocalController, RoutedChannel
from pylogd.runtime.clock import Clock
from pylogd.runtime.files import FileSystem
from pylogd.runtime.network import Network
from pylogd.runtime.workers import Workers
from pylogd.storage.directories.directory import LogDirectory, TopicPartition
from pylogd.storage.directories.log_manager import LogManager
from pylogd.storage.directories.manager_settings import ManagerSettings

if TYPE_CHECKING:
    from pylogd.config.broker import BrokerConfig
    from pylogd.controller.quorum.driver import QuorumDriver

logger = logging.getLogger(__name__)

Stop = Callable[[], Awaitable[None] | None]


class Stage(IntEnum):
    """What a node stops, in this order. Nearly the reverse of the start, but leaving takes all that is there."""

    #: Given up while everything still works.
    LEADERSHIPS = 1
    #: Hung up on. Other controllers are not: one that leads hands over, and its successor needs its vote.
    CLIENTS = 2
    BROKER = 3
    #: After the broker, which needs the controller to leave.
    QUORUM = 4
    #: All that is left of the listeners.
    LISTENERS = 5
    CHANNEL = 6
    #: Flushed and marked clean when nobody writes any more.
    LOGS = 7


class Node:
    """What both roles have, and the roles, which are made when the node is formatted."""

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
        loop = asyncio.get_running_loop()
        workers = workers or Workers(loop)
        network = network or Network(
            loop,
            workers,
            # Unless somebody asks for a size the kernel's own tuning stays: a third less CPU per byte produced.
            send_buffer_bytes=_asked(config, "socket.send.buffer.bytes"),
            receive_buffer_bytes=_asked(config, "socket.receive.buffer.bytes"),
        )
        files, clock, chance = files or FileSystem(), clock or Clock(), chance or SystemRandom()
        self.config = config
        self.host = Host(config.node_id, config, loop, clock, chance, files, workers, network)
        self.cluster_id = ""
        self.metadata = LatestImage()
        self.publisher = MetadataPublisher(loop, self.metadata)
        self.server = Server(network, config)
        self.gate = Gate()
        #: What the controller's listeners serve with; the controller itself is there once the node is formatted.
        self.controller_services = ControllerServices(
            self.host, self.metadata, self._kraft_version, Unformatted(config.node_id)
        )
        self._log_configs = LogConfigs(config, self.metadata)
        self.logs = LogManager(
            loop,
            files,
            clock,
            workers,
            config.log_dirs,
            settings=ManagerSettings.from_values(config),
            config_for=self._log_configs.of,
            chance=chance,
            on_directory_failure=self._directory_failed,
        )
        #: This node's part in the quorum, as voter or observer.
        self.driver: QuorumDriver | None = None
        #: None until it starts, and where it is not asked for.
        self.controller: ControllerRole | None = None
        self.broker: BrokerRole | None = None
        #: Done when the node cannot go on; whoever runs it stops it then.
        self.failure: asyncio.Future[str] = loop.create_future()
        self._stops: dict[Stage, Stop] = {}

    @property
    def incarnation_id(self) -> bytes | None:
        """Under which this process registers its broker; None before it does."""
        return None if self.broker is None else self.broker.lifecycle.incarnation_id

    def _kraft_version(self) -> int:
        return 1 if self.driver is None else self.driver.kraft_version

    @property
    def endpoints(self) -> list[Endpoint]:
        """The listeners as they are bound, with the ports they got."""
        return [Endpoint(bound.name, bound.host, bound.port) for bound in self.server.listeners.values()]

    # -- start

    async def start(self) -> None:
        """Returns when clients are served."""
        config, host = self.config, self.host
        formatter = Formatter(config, host.files, host.clock, host.chance.randbytes)
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
        self._stops[Stage.LOGS] = self.logs.abandon
        if config.is_controller:
            driver, channel = await self._start_controller(directories)
        else:
            driver, channel = self._observe(directories)
        if config.is_broker:
            await self._start_broker(driver, channel)
        if self.controller is not None and joined:
            await self.controller.await_vote()

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
        self._stops[Stage.CLIENTS] = lambda: self.server.close_except(config.controller_listener_names)
        self._stops[Stage.LISTENERS] = self.server.close

    async def _start_controller(self, directories: Directories) -> tuple[QuorumDriver, RoutedChannel]:
        controller = self.controller = ControllerRole(
            self.host,
            self.controller_services,
            self.server,
            cluster_id=self.cluster_id,
            directory_id=directories.ids[self.config.metadata_log_dir],
            on_failure=self._quorum_failed,
            own_incarnation_id=lambda: self.incarnation_id,
        )
        driver = self.driver = controller.driver
        self._stops[Stage.QUORUM] = controller.stop
        await controller.start()
        # The other voters must be able to ask for votes before there can be a leader to register with.
        self._serve_controller()
        driver.subscribe(self.publisher)
        channel = self._route(driver, controller.channel)
        await controller.register(channel)
        return driver, channel

    def _route(self, driver: QuorumDriver, local: LocalController | None = None) -> RoutedChannel:
        """The way to the active controller, which may be in this process."""
        config = self.config
        channel = RoutedChannel(
            self.host.network,
            find=lambda: driver.leader_address,
            bootstrap=self._controllers(),
            local=local,
            client_id=f"broker-{config.node_id}",
            timeout_s=config["controller.socket.timeout.ms"] / 1000,
            heartbeat_timeout_s=config["broker.session.timeout.ms"] / 4000,
        )
        self._stops[Stage.CHANNEL] = channel.close
        return channel

    async def _join_cluster(self, formatter: Formatter) -> None:
        """Format an empty node as part of the cluster it is told to use, or found that cluster."""
        config = self.config
        if config.is_controller:
            self._serve_controller()
        cluster_id = await find_cluster(self.host.network, config.node_id, self._controllers())
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

    def _controllers(self) -> list[tuple[str, int]]:
        """Where controllers may be found."""
        return self.config.bootstrap_servers or list(self.config.voters.values())

    def _observe(self, directories: Directories) -> tuple[QuorumDriver, RoutedChannel]:
        """Follow the metadata of controllers elsewhere."""
        driver = self.driver = build_driver(
            self.host,
            cluster_id=self.cluster_id,
            directory_id=directories.ids[self.config.metadata_log_dir],
            endpoints=[],
            on_failure=self._quorum_failed,
        )
        channel = self._route(driver)
        driver.subscribe(self.publisher)
        driver.start(state=self.publisher)
        self._stops[Stage.QUORUM] = driver.close
        return driver, channel

    async def _start_broker(self, driver: QuorumDriver, channel: RoutedChannel) -> None:
        broker = self.broker = BrokerRole(
            self.host,
            self.metadata,
            self.cluster_id,
            server=self.server,
            gate=self.gate,
            logs=self.logs,
            log_configs=self._log_configs,
            publisher=self.publisher,
            quorum=driver,
            channel=channel,
        )
        await broker.join()
        self._stops[Stage.LEADERSHIPS] = broker.leave
        self._stops[Stage.BROKER] = broker.stop
        self._stops[Stage.LOGS] = broker.close_logs
        await broker.serve()

    # -- stop

    async def stop(self) -> None:
        """Leave in good order. After a start that failed half-way only what was started is stopped."""
        stops, self._stops = self._stops, {}
        for stage in sorted(stops):
            ending = stops[stage]()
            if ending is not None:
                await ending
        self.host.network.close()
        self.host.workers.close()

    # -- what goes wrong, what changes

    def _fail(self, reason: str) -> None:
        if not self.failure.done():
            logger.critical("this node cannot go on: %s", reason)
            self.failure.set_result(reason)

    def _quorum_failed(self, error: BaseException) -> None:
        self._fail(f"the metadata log failed: {error}")

    def _directory_failed(self, directory: LogDirectory, lost: list[TopicPartition]) -> None:
        if self.broker is not None:
            self.broker.replicas_lost(lost)
        if directory.path == self.config.metadata_log_dir:
            self._fail(f"the metadata directory {directory.path} is offline")
        elif not any(other.online for other in self.logs.directories):
            self._fail("no log directory is left")
        elif directory.id is not None and self.broker is not None:
            self.broker.directory_failed(directory.id)


def _asked(config: BrokerConfig, key: str) -> int:
    """A size somebody has set, or -1."""
    return config[key] if config.is_set(key) else -1
