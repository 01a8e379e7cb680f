"""Several controllers in one process, each on a directory of its own; their messages cross as bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from pylogd.controller.bootstrap import read_bootstrap
from pylogd.controller.quorum.driver import QuorumDriver
from pylogd.controller.quorum.metadata_log import DIRECTORY, MetadataEnvironment, MetadataLog, MetadataLogConfig
from pylogd.controller.quorum.quorum_settings import QuorumSettings
from pylogd.controller.raft.settings import Timeouts
from pylogd.controller.served_apis import SERVED, ControllerContext
from pylogd.controller.service import Controller, Timings
from pylogd.controller.state import Settings
from pylogd.metadata.registrations import Endpoint
from pylogd.metadata.snapshot import snapshot_batches, write_snapshot
from pylogd.protocol.api import ApiKey
from pylogd.protocol.codec import decode, encode
from pylogd.protocol.messages import api_versions, control_records
from pylogd.rpc.caller import Caller
from pylogd.rpc.peer import PeerError
from pylogd.runtime.clock import Clock
from pylogd.runtime.files import FileSystem
from pylogd.runtime.workers import Workers

from support.controllers import CLUSTER_ID, PlainRules

FAST = Timeouts(election_ms=200, fetch_ms=1500, election_backoff_ms_max=200, request_ms=1500, fetch_wait_ms_max=200)


def directory_id(node_id: int) -> bytes:
    return bytes([node_id]) * 16


class _Peer:
    """A connection to the controller at a port."""

    def __init__(self, quorum: Quorum, source: int, port: int) -> None:
        self._quorum = quorum
        self._source = source
        self._port = port

    def send(
        self, request: Any, handler: Callable[[Any, PeerError | None], None], *, timeout_s: float | None = None
    ) -> None:
        asyncio.get_running_loop().create_task(self._ask(request, handler))

    async def _ask(self, request: Any, handler: Callable[[Any, PeerError | None], None]) -> None:
        await asyncio.sleep(0.001)
        quorum = self._quorum
        target = quorum.ports.get(self._port, -1)
        member = quorum.running.get(target)
        if {self._source, target} & quorum.cut_off and self._source != target:
            return  # silence
        if member is None:
            handler(None, PeerError("nobody listens", refused=True))
            return
        if request.API_KEY == ApiKey.VOTE and quorum.without_pre_vote and request.topics[0].partitions[0].pre_vote:
            handler(None, PeerError("no pre-votes", unsupported=True))
            return
        if request.API_KEY == ApiKey.API_VERSIONS:
            feature = api_versions.SupportedFeatureKey("kraft.version", 0, 1)
            handler(api_versions.ApiVersionsResponse(supported_features=[feature]), None)
            return
        version = SERVED[ApiKey(request.API_KEY)][1]
        arrived, _ = decode(type(request), version, bytearray(encode(request, version)))
        context = ControllerContext(Caller(listener="CONTROLLER"))
        response = await member.controller.handle(arrived, version, context)
        await asyncio.sleep(0.001)
        if target in quorum.running and not {self._source, target} & quorum.cut_off:
            handler(decode(type(response), version, bytearray(encode(response, version)))[0], None)

    def close(self) -> None:
        """Nothing is held."""


class Member:
    def __init__(self, controller: Controller, workers: Workers) -> None:
        self.controller = controller
        self.workers = workers

    @property
    def driver(self) -> QuorumDriver:
        return self.controller.driver


class Quorum:
    """`dynamic` is kraft.version 1 with the members of `voters` in the first snapshot."""

    def __init__(
        self, root: Path, voters: int = 3, *, dynamic: bool = False, config: MetadataLogConfig | None = None
    ) -> None:
        self.root = root
        self.ids = list(range(1, voters + 1))
        self.dynamic = dynamic
        self.config = config or MetadataLogConfig()
        self.running: dict[int, Member] = {}
        #: port -> id: the same, until somebody moves
        self.ports: dict[int, int] = {}
        self.cut_off: set[int] = set()
        #: the controllers are so old that they know no pre-votes
        self.without_pre_vote = False
        self.failures: list[BaseException] = []

    def _format(self, node_id: int) -> Path:
        directory = self.root / f"node{node_id}"
        if not (directory / DIRECTORY).exists():
            (directory / DIRECTORY).mkdir(parents=True)
            if self.dynamic and node_id in self.ids:
                c = control_records
                voters = c.VotersRecord(
                    voters=[
                        c.Voter(
                            voter_id=id_,
                            voter_directory_id=directory_id(id_),
                            endpoints=[c.Endpoint(name="CONTROLLER", host="localhost", port=id_)],
                            kraft_version_feature=c.KRaftVersionFeature(
                                min_supported_version=0, max_supported_version=1
                            ),
                        )
                        for id_ in self.ids
                    ]
                )
                first = snapshot_batches(
                    iter(()), epoch=0, last_contained_timestamp_ms=0, now_ms=0, kraft_version=1, voters=voters
                )
                path = directory / DIRECTORY / "00000000000000000000-0000000000.checkpoint"
                write_snapshot(FileSystem(), str(path), first)
        return directory

    async def start(self, node_id: int, *, auto_join: bool = False, port: int | None = None) -> Member:
        directory = self._format(node_id)
        port = port or node_id
        self.ports = {at: id_ for at, id_ in self.ports.items() if id_ != node_id} | {port: node_id}
        loop = asyncio.get_running_loop()
        clock, files, workers = Clock(), FileSystem(), Workers(loop, threads_max=2)
        environment = MetadataEnvironment(files, clock, loop, workers, self.failures.append)
        endpoints = [Endpoint("CONTROLLER", "localhost", port)]
        addresses = {id_: ("localhost", id_) for id_ in self.ids}
        driver = QuorumDriver(
            MetadataLog(environment, str(directory), self.config),
            node_id=node_id,
            directory_id=directory_id(node_id),
            endpoints=endpoints,
            clock=clock,
            loop=loop,
            workers=workers,
            on_failure=self.failures.append,
            quorum=QuorumSettings(
                cluster_id=CLUSTER_ID,
                voters=None if self.dynamic else addresses,
                bootstrap=list(addresses.values()) if self.dynamic else (),
                auto_join=auto_join,
                timeouts=FAST,
            ),
            connect=lambda host, at: _Peer(self, node_id, at),
            rng=Random(node_id),
        )
        rng = Random(node_id)
        controller = Controller(
            driver,
            Settings(node_id, CLUSTER_ID),
            PlainRules(),
            bootstrap=read_bootstrap(files, str(directory)),
            endpoints=endpoints,
            clock=clock,
            loop=loop,
            rng=rng,
            new_uuid=lambda: rng.randbytes(16),
            timings=Timings(idle_interval_ms=0),
        )
        member = self.running[node_id] = Member(controller, workers)
        await controller.start()
        return member

    async def stop(self, node_id: int) -> None:
        """In good order."""
        member = self.running[node_id]
        await member.controller.stop()
        del self.running[node_id]
        member.workers.close()

    async def active(self) -> Member:
        """The active controller, once there is one that all others follow."""
        async with asyncio.timeout(20):
            while True:
                for member in self.running.values():
                    if member.controller.active and member.driver.node_id not in self.cut_off:
                        return member
                await asyncio.sleep(0.005)

    async def ask(self, member: Member, request: Any) -> Any:
        version = type(request).VERSIONS[1]
        return await member.controller.handle(request, version, ControllerContext(forwarded=True))

    async def close(self) -> None:
        for node_id in list(self.running):
            await self.stop(node_id)
