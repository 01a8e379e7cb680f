"""A broker with the data path only: real sockets, real logs, real handlers, a cluster image made by hand.

It runs its event loop in a thread, so that tests are plain blocking code; `call` runs a function on the loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pylogd.broker.admin.telemetry import ClientTelemetry
from pylogd.broker.admin.topic_creation import TopicCreation
from pylogd.broker.cluster.producer_ids import ProducerIds
from pylogd.broker.fetch.fetch_plan import FetchPlanner
from pylogd.broker.fetch.fetch_sessions import FetchSessions
from pylogd.broker.gate.gate import Gate
from pylogd.broker.handlers import SUPPORTED
from pylogd.broker.network.dispatch import Dispatcher
from pylogd.broker.network.server import Server
from pylogd.broker.replicas.leaders import Leaders
from pylogd.broker.services import Services
from pylogd.config.broker import BrokerConfig
from pylogd.config.host import Host
from pylogd.config.listeners import Endpoint
from pylogd.coordinators.groups.group_coordinator import GroupCoordinator
from pylogd.coordinators.transactions.transaction_coordinator import TransactionCoordinator
from pylogd.coordinators.transactions.verifier import TransactionVerifier
from pylogd.metadata.latest import LatestImage
from pylogd.metadata.registrations import Broker, Partition, Topic
from pylogd.metadata.registrations import Endpoint as RegisteredEndpoint
from pylogd.replication.replicas import Replicas
from pylogd.rpc.broker_pool import Peers
from pylogd.runtime.clock import Clock
from pylogd.runtime.files import FileSystem
from pylogd.runtime.loop import new_event_loop
from pylogd.runtime.network import Network
from pylogd.runtime.workers import Workers
from pylogd.storage.directories.log_manager import LogManager
from pylogd.storage.log_config import LogConfig

from support.rawclient import Client
from support.wait import eventually

T = TypeVar("T")


class Channel:
    """A controller that answers with what the test put there."""

    def __init__(self) -> None:
        self.replies: list[Any] = []
        self.asked: list[Any] = []

    async def send(self, message: Any, version: int | None = None, context: Any = None) -> Any:
        self.asked.append(message)
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply


class DataNode:
    broker_id = 1
    broker_epoch = 7
    cluster_id = "test-cluster-id-000000"

    def __init__(self, directory: Path, gate: Gate | None = None, **properties: str) -> None:
        settings = {"node.id": "1", "process.roles": "broker", **properties}
        self.directory = directory
        self.config = BrokerConfig({name.replace("_", "."): value for name, value in settings.items()})
        self.loop = new_event_loop()
        self.clock = Clock()
        self.chance = random.Random(3)
        self.files = FileSystem()
        self.workers = Workers(self.loop, threads_max=2)
        self.network = Network(self.loop, self.workers)
        self.logs = LogManager(self.loop, self.files, self.clock, self.workers, [str(directory)])
        self.replicas = Replicas(self.broker_id, self.loop)
        self.metadata = LatestImage()
        self.image = self.metadata.image
        self.channel = Channel()
        host = self.host = Host(
            self.broker_id, self.config, self.loop, self.clock, self.chance, self.files, self.workers, self.network
        )
        self.producer_ids = ProducerIds(host, self.channel, lambda: self.broker_epoch)
        self.groups = GroupCoordinator(host, self.metadata, self.replicas)
        self.transactions = TransactionCoordinator(
            host,
            self.metadata,
            self.replicas,
            producer_ids=self.producer_ids,
            offsets=self.groups.shards,
            peers=Peers(host, self.metadata.address, "markers"),
        )
        self.verifier = TransactionVerifier(
            host, self.metadata, self.transactions, Peers(host, self.metadata.address, "add-partitions")
        )
        self.telemetry = ClientTelemetry(self.config, self.clock, random.Random(2), self.metadata)
        self.topic_creation = TopicCreation(host, self.channel)
        self.sessions = FetchSessions(
            self.config["max.incremental.fetch.session.cache.slots"], self.clock, random.Random(1)
        )
        self.server = Server(self.network, self.config)
        self.gate = gate or Gate()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self.port: int = self.call(self._start)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def _start(self) -> int:
        self.logs.open()
        listener = self.server.bind(Endpoint("PLAINTEXT", "127.0.0.1", 0))
        self.services = self._services()
        self.dispatcher = Dispatcher(self.services, SUPPORTED, self.gate)
        self.server.start(self.dispatcher)
        endpoint = RegisteredEndpoint("PLAINTEXT", "127.0.0.1", listener.port)
        self.image.brokers[1] = Broker(1, 7, bytes(16), {"PLAINTEXT": endpoint}, {}, fenced=False)
        return listener.port

    def _services(self) -> Services:
        leaders = Leaders(self.broker_id, self.metadata, self.replicas, self.logs)
        return Services(
            self.host,
            self.metadata,
            lambda: 1,
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

    def call(self, fn: Callable[..., T], *args: Any) -> T:
        """Run `fn` on the event loop and return its result."""
        done: concurrent.futures.Future[T] = concurrent.futures.Future()

        def run() -> None:
            try:
                done.set_result(fn(*args))
            except BaseException as error:
                done.set_exception(error)

        self.loop.call_soon_threadsafe(run)
        return done.result(30)

    def client(self, **options: Any) -> Client:
        return Client(self.port, **options)

    def create_topic(self, name: str, partitions: int = 1, *, leader: int = 1, **config: Any) -> bytes:
        """A topic whose partitions this broker leads (or, with another leader, only knows)."""
        return self.call(self._create_topic, name, partitions, leader, config)

    def _create_topic(self, name: str, partitions: int, leader: int, config: dict[str, Any]) -> bytes:
        topic_id = name.encode().ljust(16, b"\0")[:16]
        topic = Topic(name, topic_id)
        self.image.topics[name] = self.image.topics_by_id[topic_id] = topic
        for index in range(partitions):
            topic.partitions.append(Partition((leader,), (bytes(16),), (leader,), leader, 0, 0))
            if leader == self.broker_id:
                log = self.logs.create(name, index, topic_id=topic_id, config=LogConfig(**config))
                replica = self.replicas.add(name, index, topic_id, log)
                replica.become_leader(0, (1,), (1,), 0)
        return topic_id

    def coordinate(self, **config: Any) -> None:
        """Become the coordinator of all groups."""
        self.create_topic("__consumer_offsets", **config)
        eventually(lambda: self.groups.shards.by_partition[0].active)

    def partition(self, topic: str, index: int = 0) -> Any:
        return self.replicas.get(topic, index)

    def close(self) -> None:
        self.call(self.server.close)
        self.call(self.network.close)
        asyncio.run_coroutine_threadsafe(self.logs.close(), self.loop).result(30)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(30)
        self.workers.close()
        self.loop.close()
