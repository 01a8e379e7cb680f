"""The broker of a node put together, where `process.roles` asks for one.

It is made when there is a way to the active controller. It registers, replays the metadata up to its registration,
recovers its logs, takes the roles of its replicas, and then lets clients in. It leaves the other way round: leaderships
are given up while everything still works.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pylogd.broker.admin.config_listeners import BrokerConfigs, TopicConfigs
from pylogd.broker.admin.telemetry import ClientTelemetry
from pylogd.broker.admin.topic_creation import TopicCreation
from pylogd.broker.cluster.controller_assembly import broker_endpoints
from pylogd.broker.cluster.producer_ids import ProducerIds
from pylogd.broker.cluster.registration import BrokerLifecycle
from pylogd.broker.fetch.fetch_plan import FetchPlanner
from pylogd.broker.fetch.fetch_sessions import FetchSessions
from pylogd.broker.handlers import SUPPORTED
from pylogd.broker.network.dispatch import Dispatcher
from pylogd.broker.replicas.directory_assignment import DirectoryAssignment
from pylogd.broker.replicas.hosted_replicas import HostedReplicas
from pylogd.broker.replicas.isr_changes import IsrChanges
from pylogd.broker.replicas.leaders import Leaders
from pylogd.broker.services import Services
from pylogd.coordinators.groups.group_coordinator import GroupCoordinator
from pylogd.coordinators.transactions.transaction_coordinator import TransactionCoordinator
from pylogd.coordinators.transactions.verifier import TransactionVerifier
from pylogd.protocol import uuids
from pylogd.replication.fetchers import Fetchers
from pylogd.replication.in_sync import Standing
from pylogd.replication.replicas import Replicas
from pylogd.rpc.broker_pool import Peers
from pylogd.storage.compaction.cleaner import CleanerConfig, LogCleaner

if TYPE_CHECKING:
    from pylogd.broker.admin.log_configs import LogConfigs
    from pylogd.broker.cluster.publisher import MetadataListener, MetadataPublisher
    from pylogd.broker.gate.gate import Gate
    from pylogd.broker.network.server import Server
    from pylogd.config.host import Host
    from pylogd.controller.quorum.driver import QuorumDriver
    from pylogd.metadata.latest import LatestImage
    from pylogd.rpc.controller_channel import RoutedChannel
    from pylogd.storage.directories.directory import TopicPartition
    from pylogd.storage.directories.log_manager import LogManager


class BrokerRole:
    """Everything a broker has and a controller has not. `quorum` is this node's part in it, maybe as an observer."""

    def __init__(
        self,
        host: Host,
        metadata: LatestImage,
        cluster_id: str,
        *,
        server: Server,
        gate: Gate,
        logs: LogManager,
        log_configs: LogConfigs,
        publisher: MetadataPublisher,
        quorum: QuorumDriver,
        channel: RoutedChannel,
    ) -> None:
        config = host.config
        self._host = host
        self._metadata = metadata
        self._cluster_id = cluster_id
        self._server = server
        self._gate = gate
        self._logs = logs
        self._publisher = publisher
        self._quorum = quorum
        self._channel = channel
        #: Whether the broker is registered and its replicas have their roles, until it leaves.
        self.joined = False
        self.lifecycle = self._lifecycle()
        broker_epoch = self.lifecycle.current_epoch
        self.fetchers = Fetchers(host, metadata, broker_epoch)
        self.isr_changes = IsrChanges(host, channel, broker_epoch)
        self.replicas = Replicas(
            host.broker_id,
            host.loop,
            clock=host.clock,
            standing=self.standing,
            lag_ms_max=config["replica.lag.time.max.ms"],
            propose=self.isr_changes.propose,
            follower_flushed=self.fetchers.flushed,
        )
        self.cleaner = LogCleaner(logs.loaded, host.files, host.clock, host.workers, CleanerConfig.from_values(config))
        logs.truncation_listeners.append(self.cleaner.truncated)
        self.producer_ids = ProducerIds(host, channel, broker_epoch)
        self.groups = GroupCoordinator(host, metadata, self.replicas)
        self.transactions = TransactionCoordinator(
            host,
            metadata,
            self.replicas,
            producer_ids=self.producer_ids,
            offsets=self.groups.shards,
            peers=Peers(host, metadata.address, "markers"),
        )
        coordinators = Peers(host, metadata.address, "add-partitions")
        self.verifier = TransactionVerifier(host, metadata, self.transactions, coordinators)
        self.broker_configs = BrokerConfigs(host, metadata, logs, log_configs)
        self.topic_configs = TopicConfigs(metadata, logs, log_configs)
        self.assignment = DirectoryAssignment(host, channel, broker_epoch)
        self.hosted_replicas = HostedReplicas(
            host.broker_id, metadata, logs, self.replicas, self.fetchers, self.cleaner, self.assignment
        )
        config.subscribe(self._config_changed)

    def _lifecycle(self) -> BrokerLifecycle:
        host, logs = self._host, self._logs
        bound = {name: listener.port for name, listener in self._server.listeners.items()}
        stopped_epochs = [directory.stopped_broker_epoch for directory in logs.directories if directory.online]
        return BrokerLifecycle(
            host,
            self._cluster_id,
            channel=self._channel,
            quorum=self._quorum,
            publisher=self._publisher,
            logs=logs,
            incarnation_id=uuids.version_4(host.chance.randbytes(16)),
            endpoints=broker_endpoints(host.config, socket.gethostname(), bound),
            previous_epoch=min(stopped_epochs, default=-1),
        )

    def standing(self, broker_id: int) -> Standing | None:
        """How the metadata sees a broker; None unless it is alive. What this broker is, it knows itself."""
        if broker_id == self._host.broker_id:
            return Standing(self.lifecycle.epoch, True)
        broker = self._metadata.image.brokers.get(broker_id)
        return None if broker is None or broker.fenced else Standing(broker.epoch, broker.is_active)

    # -- start

    async def join(self) -> None:
        """Returns when this broker is registered and its replicas have their roles."""
        self._quorum.leader_listeners.append(self.lifecycle.controller_changed)
        await self.lifecycle.register()
        await self._publisher.reached(self.lifecycle.epoch)
        await self._logs.recover()
        self.broker_configs.take_effect()
        self.hosted_replicas.put_strays_aside()
        await self._publisher.start(self._listeners())
        self.joined = True

    def _listeners(self) -> list[MetadataListener]:
        """Who is told of changes of the metadata, in this order."""
        return [
            # New logs are made with the settings that hold now.
            self.broker_configs,
            # Before partitions come to fetchers, these know where the leaders are.
            self.fetchers,
            # A partition tells its coordinator of a leadership itself, in the step in which it is won or lost: a shard
            # that is no longer led stops to answer then, and not only when it is the coordinators' turn.
            self.hosted_replicas,
            self.topic_configs,
            # Their shards are those of the roles that the replicas have now.
            self.groups,
            self.transactions,
            self.lifecycle,
        ]

    async def serve(self) -> None:
        """Returns when clients are let in and the controller counts on this broker."""
        self._logs.start()
        self.cleaner.start()
        self.isr_changes.watch(self.replicas)
        self._server.start(Dispatcher(self._services(), SUPPORTED, self._gate))
        await self.lifecycle.unfence()

    def _services(self) -> Services:
        host, metadata, config = self._host, self._metadata, self._host.config
        leaders = Leaders(host.broker_id, metadata, self.replicas, self._logs)
        return Services(
            host,
            metadata,
            lambda: self._quorum.kraft_version,
            cluster_id=self._cluster_id,
            channel=self._channel,
            logs=self._logs,
            replicas=self.replicas,
            leaders=leaders,
            planner=FetchPlanner(host.broker_id, metadata, self.replicas, leaders),
            sessions=FetchSessions(config["max.incremental.fetch.session.cache.slots"], host.clock, host.chance),
            groups=self.groups,
            transactions=self.transactions,
            verifier=self.verifier,
            producer_ids=self.producer_ids,
            topic_creation=TopicCreation(host, self._channel),
            telemetry=ClientTelemetry(config, host.clock, host.chance, metadata),
        )

    # -- stop

    async def leave(self) -> None:
        """Gives the leaderships up, while everything still works."""
        self.joined = False
        await self.lifecycle.controlled_shutdown(self._host.config["broker.session.timeout.ms"] / 1000)

    async def stop(self) -> None:
        """Comes after the clients are gone."""
        self.verifier.close()
        await self.transactions.close()
        await self.groups.close()
        self.fetchers.close()
        await self.isr_changes.stop()
        await self.cleaner.close()
        await self._publisher.stop()
        await self.assignment.stop()
        await self.lifecycle.stop()

    async def close_logs(self) -> None:
        """Marks them as stopped cleanly in this broker's epoch."""
        await self._logs.close(self.lifecycle.epoch)

    # -- what goes wrong, what changes

    def replicas_lost(self, lost: Iterable[TopicPartition]) -> None:
        """Their log directory failed."""
        self.replicas.directory_failed(lost)
        for topic, index in lost:
            partition = self.replicas.get(topic, index)
            if partition is not None:
                self.fetchers.update(partition)

    def directory_failed(self, directory_id: bytes) -> None:
        """The controller hears of it; other directories are left."""
        if self.joined:
            self.lifecycle.directory_failed(directory_id)

    def _config_changed(self, names: frozenset[str]) -> None:
        config = self._host.config
        if any(name.startswith("log.cleaner.") for name in names):
            self.cleaner.reconfigure(CleanerConfig.from_values(config))
        if "num.replica.fetchers" in names:
            self.fetchers.resize(config["num.replica.fetchers"])
        if "cordoned.log.dirs" in names and self.joined:
            self.lifecycle.config_changed()
