"""A controller without a broker around it: states for decision tables, and a running one on a directory."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from pylogd.controller.bootstrap import read_bootstrap
from pylogd.controller.heartbeats import Heartbeats
from pylogd.controller.quorum.driver import QuorumDriver
from pylogd.controller.quorum.metadata_log import DIRECTORY, MetadataEnvironment, MetadataLog, MetadataLogConfig
from pylogd.controller.served_apis import ControllerContext
from pylogd.controller.service import Controller, Timings
from pylogd.controller.state import ControllerState, EffectiveConfig, Settings
from pylogd.metadata import feature_levels
from pylogd.metadata.image import ClusterImage
from pylogd.metadata.registrations import Endpoint
from pylogd.metadata.snapshot import snapshot_batches, write_snapshot
from pylogd.protocol.codec import decode, encode
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages import broker_registration, control_records, metadata_records
from pylogd.runtime.clock import Clock
from pylogd.runtime.files import FileSystem
from pylogd.runtime.workers import Workers

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
DIRECTORY_ID = bytes(range(16))


class PlainRules:
    """Knows a handful of configs; enough to see what the controller does with the answers."""

    DEFAULTS = {
        "cleanup.policy": "delete",
        "min.insync.replicas": "1",
        "retention.ms": "604800000",
        "unclean.leader.election.enable": "false",
    }

    def validate(self, resource_type: int, name: str, values: Mapping[str, str], current: Mapping[str, str]) -> None:
        if resource_type == 2:
            for key in values:
                if key not in self.DEFAULTS:
                    raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {key}")

    def is_list(self, resource_type: int, key: str) -> bool:
        return key == "cleanup.policy"

    def default(self, resource_type: int, key: str) -> str | None:
        return self.DEFAULTS.get(key)

    def topic_value(
        self, key: str, topic: Mapping[str, str], node: Mapping[str, str], cluster: Mapping[str, str]
    ) -> str:
        return topic.get(key) or node.get(key) or cluster.get(key) or self.DEFAULTS[key]

    def topic_configs(
        self, topic: Mapping[str, str], node: Mapping[str, str], cluster: Mapping[str, str]
    ) -> list[EffectiveConfig]:
        return [
            EffectiveConfig(name, topic.get(name, default), False, 1 if name in topic else 5, False)
            for name, default in self.DEFAULTS.items()
        ]


def broker_directory(broker_id: int, index: int = 0) -> bytes:
    return bytes([broker_id + 1, index + 1]) * 8


def replay(state: ControllerState, records: Sequence[tuple[Any, int]]) -> None:
    """What appending does to the state."""
    state.replay(records, state.next_offset)
    state.next_offset += len(records)


def new_state(
    brokers: int = 1,
    *,
    fenced: Sequence[int] = (),
    racks: Mapping[int, str] | None = None,
    directories: int = 1,
    metadata_version: int = feature_levels.METADATA_LATEST,
    features: Mapping[str, int] | None = None,
    seed: int = 1,
    **settings: Any,
) -> ControllerState:
    """A state with brokers 0, 1, ... registered and, unless told otherwise, unfenced."""
    rng = Random(seed)
    state = ControllerState(
        ClusterImage(),
        Heartbeats(),
        Settings(0, CLUSTER_ID, **settings),
        PlainRules(),
        rng,
        lambda: rng.randbytes(16),
    )
    m = metadata_records
    records: list[tuple[Any, int]] = [
        (m.FeatureLevelRecord(name=feature_levels.METADATA_VERSION, feature_level=metadata_version), 0)
    ]
    for name, level in (features if features is not None else {feature_levels.ELR_VERSION: 1}).items():
        records.append((m.FeatureLevelRecord(name=name, feature_level=level), 0))
    for broker_id in range(brokers):
        record = m.RegisterBrokerRecord(
            broker_id=broker_id,
            broker_epoch=100 + broker_id,
            incarnation_id=bytes([broker_id]) * 16,
            rack=(racks or {}).get(broker_id),
            fenced=broker_id in fenced,
            features=[
                m.BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in feature_levels.SUPPORTED_FEATURES.items()
            ],
            end_points=[m.BrokerEndpoint(name="PLAINTEXT", host="localhost", port=9092 + broker_id)],
            log_dirs=[broker_directory(broker_id, index) for index in range(directories)],
        )
        records.append((record, feature_levels.register_broker_record_version(metadata_version)))
    replay(state, records)
    return state


def with_topic(state: Any, *partitions: dict[str, Any], name: str = "t", **configs: str) -> Any:
    """Adds a topic; its partitions are led by their first replica and whole, unless told otherwise."""
    m = metadata_records
    topic_id = (name * 16)[:16].encode()
    records: list[Any] = [(m.TopicRecord(name=name, topic_id=topic_id), 0)]
    for key, value in configs.items():
        records.append(
            (m.ConfigRecord(resource_type=2, resource_name=name, name=key.replace("_", "."), value=value), 0)
        )
    for index, given in enumerate(partitions):
        fields = {"isr": given["replicas"], "leader": given["replicas"][0], "leader_epoch": 0, "partition_epoch": 0}
        fields["directories"] = [broker_directory(replica) for replica in given["replicas"]]
        fields.update(given)
        records.append((m.PartitionRecord(partition_id=index, topic_id=topic_id, **fields), 2))
    replay(state, records)
    return state


def registration(broker_id: int = 0, incarnation: bytes = b"new" + bytes(13), **fields: Any) -> Any:
    """A BrokerRegistration request of another process than the one that new_state() knows."""
    m = broker_registration
    given = {
        "broker_id": broker_id,
        "cluster_id": CLUSTER_ID,
        "incarnation_id": incarnation,
        "rack": None,
        "listeners": [m.Listener(name="PLAINTEXT", host="h", port=1)],
        "features": [
            m.Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in feature_levels.SUPPORTED_FEATURES.items()
        ],
        "log_dirs": [broker_directory(broker_id)],
    }
    given.update(fields)
    return m.BrokerRegistrationRequest(**given)


def format_directory(root: Path, node_id: int = 1, port: int = 9093) -> None:
    """The first snapshot of a standalone voter: kraft.version 1 and the voters."""
    (root / DIRECTORY).mkdir(parents=True)
    c = control_records
    voters = c.VotersRecord(
        voters=[
            c.Voter(
                voter_id=node_id,
                voter_directory_id=DIRECTORY_ID,
                endpoints=[c.Endpoint(name="CONTROLLER", host="127.0.0.1", port=port)],
                kraft_version_feature=c.KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
            )
        ]
    )
    batches = snapshot_batches(
        iter(()), epoch=0, last_contained_timestamp_ms=0, now_ms=0, kraft_version=1, voters=voters
    )
    path = root / DIRECTORY / "00000000000000000000-0000000000.checkpoint"
    write_snapshot(FileSystem(), str(path), batches)


class RunningController:
    """A controller on a directory; `async with` starts and stops it."""

    def __init__(
        self,
        root: Path,
        *,
        node_id: int = 1,
        port: int = 9093,
        config: MetadataLogConfig | None = None,
        timings: Timings | None = None,
        clock: Clock | None = None,
        **settings: Any,
    ) -> None:
        if not (root / DIRECTORY).exists():
            format_directory(root, node_id, port)
        self.root = root
        self.node_id = node_id
        self.config = config or MetadataLogConfig()
        self.timings = timings or Timings(idle_interval_ms=0)
        self.clock = clock or Clock()
        self.settings = Settings(node_id, CLUSTER_ID, **settings)
        self.endpoints = [Endpoint("CONTROLLER", "127.0.0.1", port)]
        self.failures: list[BaseException] = []

    async def __aenter__(self) -> RunningController:
        loop = asyncio.get_running_loop()
        self.workers = Workers(loop, threads_max=2)
        files = FileSystem()
        environment = MetadataEnvironment(files, self.clock, loop, self.workers, self.failures.append)
        log = MetadataLog(environment, str(self.root), self.config)
        self.driver = QuorumDriver(
            log,
            node_id=self.node_id,
            directory_id=DIRECTORY_ID,
            endpoints=self.endpoints,
            clock=self.clock,
            loop=loop,
            workers=self.workers,
            on_failure=self.failures.append,
        )
        rng = Random(7)
        self.controller = Controller(
            self.driver,
            self.settings,
            PlainRules(),
            bootstrap=read_bootstrap(files, str(self.root)),
            endpoints=self.endpoints,
            clock=self.clock,
            loop=loop,
            rng=rng,
            new_uuid=lambda: rng.randbytes(16),
            timings=self.timings,
        )
        await self.controller.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.controller.stop()
        self.workers.close()

    async def ask(self, request: Any, version: int | None = None) -> Any:
        """The answer, through the bytes of both: a field that a version does not have is found here."""
        version = type(request).VERSIONS[1] if version is None else version
        arrived, _ = decode(type(request), version, encode(request, version))
        response = await self.controller.handle(arrived, version, ControllerContext(forwarded=True))
        return decode(type(response), version, encode(response, version))[0]

    async def register(self, broker_id: int = 1, directories: Sequence[bytes] = (b"d" * 16,)) -> int:
        """Registers and unfences a broker; returns its epoch."""
        from pylogd.protocol.messages import broker_heartbeat, broker_registration

        m = broker_registration
        reply = await self.ask(
            m.BrokerRegistrationRequest(
                broker_id=broker_id,
                cluster_id=CLUSTER_ID,
                incarnation_id=Random(broker_id).randbytes(16),
                listeners=[m.Listener(name="PLAINTEXT", host="127.0.0.1", port=9092)],
                features=[
                    m.Feature(name=name, min_supported_version=low, max_supported_version=high)
                    for name, (low, high) in feature_levels.SUPPORTED_FEATURES.items()
                ],
                rack=None,
                log_dirs=list(directories),
            )
        )
        assert reply.error_code == 0, ErrorCode(reply.error_code)
        heartbeat = await self.ask(
            broker_heartbeat.BrokerHeartbeatRequest(
                broker_id=broker_id,
                broker_epoch=reply.broker_epoch,
                current_metadata_offset=self.driver.committed_offset,
                cordoned_log_dirs=[],
            )
        )
        assert not heartbeat.is_fenced
        return int(reply.broker_epoch)
