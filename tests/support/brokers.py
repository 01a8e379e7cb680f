"""A broker without sockets: a running controller, real logs and replicas, and the metadata path between them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any

from pylogd.broker.admin.config_listeners import BrokerConfigs, TopicConfigs
from pylogd.broker.admin.log_configs import LogConfigs
from pylogd.broker.admin.topic_creation import TopicCreation
from pylogd.broker.cluster.local_channel import LocalChannel
from pylogd.broker.cluster.publisher import MetadataPublisher
from pylogd.broker.cluster.registration import BrokerLifecycle
from pylogd.broker.replicas.directory_assignment import DirectoryAssignment
from pylogd.broker.replicas.hosted_replicas import HostedReplicas
from pylogd.config.broker import BrokerConfig
from pylogd.config.host import Host
from pylogd.controller.quorum.driver import QuorumDriver
from pylogd.metadata.image import ClusterImage
from pylogd.metadata.latest import LatestImage
from pylogd.metadata.registrations import Endpoint
from pylogd.protocol.uuids import to_text
from pylogd.replication.fetchers import Fetchers
from pylogd.replication.replicas import Replicas
from pylogd.storage.compaction.cleaner import CleanerConfig, LogCleaner
from pylogd.storage.directories.log_manager import LogManager

from support.controllers import CLUSTER_ID, RunningController

BROKER_ID = 1


class RunningBroker:
    """`async with` starts controller and broker; `crash()` leaves without a word."""

    def __init__(self, root: Path, directories: int = 1, **properties: str) -> None:
        self.root = root
        self.broker_id = BROKER_ID
        self.cluster_id = CLUSTER_ID
        self.paths = [str(root / f"data{n}") for n in range(directories)]
        static = {
            "process.roles": "broker,controller",
            "node.id": str(BROKER_ID),
            "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
            "log.dirs": ",".join(self.paths),
        }
        static.update({name.replace("_", "."): value for name, value in properties.items()})
        self.config = BrokerConfig(static)
        self.running = RunningController(root / "metadata")

    @property
    def driver(self) -> QuorumDriver:
        return self.running.driver

    @property
    def image(self) -> ClusterImage:
        return self.publisher.image

    @property
    def broker_epoch(self) -> int:
        return self.lifecycle.epoch

    def directory_id(self, number: int) -> bytes:
        return bytes([64 + number]) * 16

    async def __aenter__(self) -> RunningBroker:
        self.loop = asyncio.get_running_loop()
        for number, path in enumerate(self.paths):
            Path(path).mkdir(parents=True, exist_ok=True)
            text = f"version=1\ncluster.id={CLUSTER_ID}\nnode.id=1\ndirectory.id={to_text(self.directory_id(number))}\n"
            (Path(path) / "meta.properties").write_text(text)
        await self.running.__aenter__()
        self.running.controller.state.heartbeats.activate(self.running.controller.state.image, 0, BROKER_ID)
        self.channel = LocalChannel(self.running.controller)
        self.metadata = LatestImage()
        self.publisher = MetadataPublisher(self.loop, self.metadata)
        files, clock, workers = self.running.driver.log.files, self.running.clock, self.running.workers
        network: Any = None
        host = Host(BROKER_ID, self.config, self.loop, clock, Random(), files, workers, network)
        self.topic_creation = TopicCreation(host, self.channel)
        log_configs = LogConfigs(self.config, self.metadata)
        self.logs = LogManager(self.loop, files, clock, workers, self.paths, config_for=log_configs.of)
        self.logs.open()
        self.cleaner = LogCleaner(self.logs.loaded, files, clock, workers, CleanerConfig.from_values(self.config))
        self.replicas = Replicas(BROKER_ID, self.loop)
        self.lifecycle = BrokerLifecycle(
            host,
            self.cluster_id,
            channel=self.channel,
            quorum=self.driver,
            publisher=self.publisher,
            logs=self.logs,
            incarnation_id=Random().randbytes(16),
            endpoints=[Endpoint("PLAINTEXT", "127.0.0.1", 9092)],
            previous_epoch=min(directory.stopped_broker_epoch for directory in self.logs.directories),
        )
        self.fetchers = Fetchers(host, self.metadata, self.lifecycle.current_epoch)
        self.assignment = DirectoryAssignment(host, self.channel, self.lifecycle.current_epoch)
        hosted = HostedReplicas(
            BROKER_ID, self.metadata, self.logs, self.replicas, self.fetchers, self.cleaner, self.assignment
        )
        broker_configs = BrokerConfigs(host, self.metadata, self.logs, log_configs)
        topic_configs = TopicConfigs(self.metadata, self.logs, log_configs)
        self.driver.subscribe(self.publisher)
        await self.lifecycle.register()
        await self.publisher.reached(self.lifecycle.epoch)
        await self.logs.recover()
        broker_configs.take_effect()
        hosted.put_strays_aside()
        await self.publisher.start([broker_configs, self.fetchers, hosted, topic_configs])
        await self.lifecycle.unfence()
        await self.settled()
        return self

    async def settled(self) -> None:
        """Everything committed is applied, and the controller has nothing more to hear from this broker."""
        while True:
            await self.publisher.reached(self.running.driver.end_offset - 1)
            if self.publisher.idle and self.assignment.idle:
                return
            await asyncio.sleep(0.001)

    async def __aexit__(self, *error: object) -> None:
        await self.lifecycle.controlled_shutdown(10)
        await self.publisher.stop()
        await self.assignment.stop()
        await self.lifecycle.stop()
        await self.logs.close(self.broker_epoch)
        await self.running.__aexit__()

    async def crash(self) -> None:
        """What is on disk stays as it is."""
        await self.lifecycle.stop()
        await self.publisher.stop()
        await self.assignment.stop()
        self.logs.abandon()
        await self.running.__aexit__()

    async def ask(self, request: Any) -> Any:
        return await self.channel.send(request)
