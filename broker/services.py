"""What a handler may ask: the parts of this node, by name. A request's context carries them as `ctx.services`.

None of the parts knows the context of a request: each is given what it needs by name. That keeps the types of
handlers, contexts and services free of cycles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pylogd.broker.admin.telemetry import ClientTelemetry
    from pylogd.broker.admin.topic_creation import TopicCreation
    from pylogd.broker.cluster.joining import Unformatted
    from pylogd.broker.cluster.producer_ids import ProducerIds
    from pylogd.broker.fetch.fetch_plan import FetchPlanner
    from pylogd.broker.fetch.fetch_sessions import FetchSessions
    from pylogd.broker.replicas.leaders import Leaders
    from pylogd.config.host import Host
    from pylogd.controller.service import Controller
    from pylogd.coordinators.groups.group_coordinator import GroupCoordinator
    from pylogd.coordinators.transactions.transaction_coordinator import TransactionCoordinator
    from pylogd.coordinators.transactions.verifier import TransactionVerifier
    from pylogd.metadata.image import ClusterImage
    from pylogd.metadata.latest import LatestImage
    from pylogd.replication.replicas import Replicas
    from pylogd.rpc.controller_channel import RoutedChannel
    from pylogd.storage.directories.log_manager import LogManager


class NodeServices:
    """What every listener has, of a broker or of a controller."""

    __slots__ = ("_kraft_version", "broker_id", "clock", "config", "host", "loop", "metadata", "workers")

    def __init__(self, host: Host, metadata: LatestImage, kraft_version: Callable[[], int]) -> None:
        self.host = host
        self.metadata = metadata
        self._kraft_version = kraft_version
        # Copies: they are read for every request, and this spares a step.
        self.broker_id = host.broker_id
        self.config = host.config
        self.clock = host.clock
        self.loop = host.loop
        self.workers = host.workers

    @property
    def image(self) -> ClusterImage:
        """The committed metadata as this broker has it."""
        return self.metadata.image

    @property
    def kraft_version(self) -> int:
        return self._kraft_version()


class ControllerServices(NodeServices):
    """What a controller's listener has besides. `Unformatted` stands in until the node belongs to a cluster."""

    __slots__ = ("controller",)

    def __init__(
        self,
        host: Host,
        metadata: LatestImage,
        kraft_version: Callable[[], int],
        controller: Controller | Unformatted,
    ) -> None:
        super().__init__(host, metadata, kraft_version)
        self.controller = controller


class Services(NodeServices):
    """What a broker's listeners have besides."""

    __slots__ = (
        "channel",
        "cluster_id",
        "groups",
        "leaders",
        "logs",
        "planner",
        "producer_ids",
        "replicas",
        "sessions",
        "telemetry",
        "topic_creation",
        "transactions",
        "verifier",
    )

    def __init__(
        self,
        host: Host,
        metadata: LatestImage,
        kraft_version: Callable[[], int],
        *,
        cluster_id: str,
        channel: RoutedChannel,
        logs: LogManager,
        replicas: Replicas,
        leaders: Leaders,
        planner: FetchPlanner,
        sessions: FetchSessions,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        verifier: TransactionVerifier,
        producer_ids: ProducerIds,
        topic_creation: TopicCreation,
        telemetry: ClientTelemetry,
    ) -> None:
        super().__init__(host, metadata, kraft_version)
        self.cluster_id = cluster_id
        self.channel = channel
        self.logs = logs
        self.replicas = replicas
        self.leaders = leaders
        self.planner = planner
        self.sessions = sessions
        self.groups = groups
        self.transactions = transactions
        self.verifier = verifier
        self.producer_ids = producer_ids
        self.topic_creation = topic_creation
        self.telemetry = telemetry
