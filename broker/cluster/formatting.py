"""Formatting of log directories: what must lie there before a node can start, and who may use them.

A formatted directory holds `meta.properties` and `bootstrap.checkpoint`, the feature levels that a new cluster starts
with, in the form of a snapshot. The metadata directory of a dynamic quorum (kraft.version 1) also holds the first
snapshot of the metadata log, `__cluster_metadata-0/00000000000000000000-0000000000.checkpoint`, which names the first
voters by id, directory id and endpoint. With `controller.quorum.voters` the quorum is static and there is none.
All bytes are those of `kafka-storage.sh format`.

Kafka wants this done by hand. Here an empty directory is formatted at the first start, when it is clear that no other
node could have a say: the node is alone in its quorum, or its other directories already tell the cluster.

Crash policy: `meta.properties` is written last. A directory without it is formatted again from the beginning, except
when it holds logs: those belong to somebody, and nothing is written. The directory's `.lock` is held meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from pylogd.broker.cluster import meta_properties
from pylogd.broker.cluster.meta_properties import MetaProperties
from pylogd.config.broker import BrokerConfig
from pylogd.config.listeners import Endpoint
from pylogd.protocol import uuids
from pylogd.runtime.clock import Clock
from pylogd.runtime.file_lock import LockHeld
from pylogd.runtime.files import FileSystem

if TYPE_CHECKING:
    from pylogd.protocol.messages.control_records import VotersRecord

BOOTSTRAP_NAME = "bootstrap.checkpoint"
METADATA_PARTITION = "__cluster_metadata-0"
FIRST_SNAPSHOT = "00000000000000000000-0000000000.checkpoint"


class FormatError(Exception):
    """Directories that cannot be formatted or used; the message says which and why."""


class Voter(NamedTuple):
    """A first member of a dynamic quorum."""

    node_id: int
    directory_id: bytes
    endpoint: Endpoint


class Directories(NamedTuple):
    """Every usable directory with its id, and those that could not be read."""

    cluster_id: str
    ids: dict[str, bytes]
    failed: dict[str, str]
    formatted: list[str]


class Formatter:
    """Reads the ensemble of a node's directories, refuses what does not belong together, formats what is empty."""

    def __init__(
        self, config: BrokerConfig, files: FileSystem, clock: Clock, random_bytes: Callable[[int], bytes]
    ) -> None:
        self.config = config
        self.files = files
        self.clock = clock
        self.random_bytes = random_bytes
        self.metadata_dir = config.metadata_log_dir
        self.paths = sorted({*config.log_dirs, self.metadata_dir})
        self.reload()

    def reload(self) -> None:
        """Look at the directories again."""
        self.found: dict[str, MetaProperties] = {}
        self.empty: list[str] = []
        self.failed: dict[str, str] = {}
        for path in self.paths:
            try:
                meta = meta_properties.read(self.files, path)
            except (OSError, ValueError) as error:
                self.failed[path] = str(error)
                continue
            if meta is None:
                self.empty.append(path)
            else:
                self.found[path] = meta

    def verify(self, cluster_id: str | None) -> str | None:
        """Refuse directories of another node or cluster; returns the cluster id if any directory tells it."""
        seen: dict[bytes, str] = {}
        first = ""
        node_id = self.config.node_id
        for path, meta in self.found.items():
            if meta.cluster_id is not None:
                if cluster_id is None:
                    cluster_id, first = meta.cluster_id, path
                elif meta.cluster_id != cluster_id:
                    source = f" as {first} does" if first else ""
                    raise FormatError(
                        f"log directory {path} belongs to cluster {meta.cluster_id}, not to {cluster_id}{source}"
                    )
            if meta.node_id is not None and meta.node_id != node_id:
                raise FormatError(
                    f"log directory {path} belongs to node {meta.node_id}, but node.id is {node_id}; "
                    "use that node.id, or empty the directory to start a new node"
                )
            if meta.directory_id is not None:
                if meta.directory_id < bytes(15) + bytes([uuids.RESERVED_COUNT]):
                    raise FormatError(f"log directory {path} has the reserved id {uuids.to_text(meta.directory_id)}")
                if meta.directory_id in seen:
                    raise FormatError(
                        f"log directories {seen[meta.directory_id]} and {path} have the same id "
                        f"{uuids.to_text(meta.directory_id)}; one is a copy of the other"
                    )
                seen[meta.directory_id] = path
        if self.metadata_dir in self.failed:
            raise FormatError(f"metadata directory {self.metadata_dir}: {self.failed[self.metadata_dir]}")
        for path in self.found:
            if path != self.metadata_dir and self.files.exists(f"{path}/{METADATA_PARTITION}"):
                raise FormatError(
                    f"log directory {path} holds the metadata log, but the metadata directory is {self.metadata_dir}"
                )
        return cluster_id

    def prepare(self) -> Directories:
        """At start: use what is formatted, format what is empty if no other node could have a say in it."""
        cluster_id = self.verify(None)
        if not self.found:
            if not self.empty:
                problems = "; ".join(f"{path}: {reason}" for path, reason in self.failed.items())
                raise FormatError(f"no usable log directory: {problems}")
            if not self.is_alone():
                raise FormatError(
                    "the log directories are not formatted and other nodes belong to the quorum; "
                    "run `pylogd format --config FILE --cluster-id ID` with the same id on every node"
                )
            return self.format(self.new_id_text(), [self.standalone_voter()] if not self.config.voters else None)
        if cluster_id is None:
            raise FormatError(f"no cluster.id in {next(iter(self.found))}/{meta_properties.FILE_NAME}")
        if self.metadata_dir in self.empty:
            raise FormatError(
                f"metadata directory {self.metadata_dir} is empty although {next(iter(self.found))} belongs to cluster "
                f"{cluster_id}: the cluster's metadata is missing. Restore it, or correct metadata.log.dir and log.dirs"
            )
        self._complete_old(cluster_id)
        return self.format(cluster_id, None)

    def format(self, cluster_id: str, voters: list[Voter] | None) -> Directories:
        """Format every empty directory. `voters` are those of a dynamic quorum, None for a static one."""
        for path in self.empty:
            self._refuse_orphans(path)
        ids = {path: meta.directory_id for path, meta in self.found.items() if meta.directory_id is not None}
        formatted = []
        # The metadata directory comes first: a crash after it leaves a node that can start, any other order one whose
        # metadata seems lost.
        for path in sorted(self.empty, key=lambda path: path != self.metadata_dir):
            try:
                directory_id = self._format_one(path, cluster_id, voters, set(ids.values()))
            except OSError as error:
                if path == self.metadata_dir:
                    raise FormatError(f"metadata directory {path}: {error.strerror or error}") from None
                self.failed[path] = str(error)
                continue
            ids[path] = directory_id
            formatted.append(path)
        if not ids:
            raise FormatError("; ".join(f"log directory {path}: {reason}" for path, reason in self.failed.items()))
        return Directories(cluster_id, ids, dict(self.failed), formatted)

    def _format_one(self, path: str, cluster_id: str, voters: list[Voter] | None, taken: set[bytes]) -> bytes:
        self.files.mkdirs(path)
        try:
            lock = self.files.lock(f"{path}/.lock")
        except LockHeld:
            raise FormatError(f"log directory {path} is in use by another process") from None
        try:
            if meta_properties.read(self.files, path) is not None:
                raise FormatError(f"log directory {path} was formatted by another process meanwhile")
            return self._write(path, cluster_id, voters, self._new_id(taken))
        finally:
            lock.release()

    def _write(self, path: str, cluster_id: str, voters: list[Voter] | None, directory_id: bytes) -> bytes:
        data = b"".join(bootstrap_batches(self.clock))
        self.files.write_atomically(f"{path}/{BOOTSTRAP_NAME}", data)
        if path == self.metadata_dir and voters is not None:
            for voter in voters:
                if voter.node_id == self.config.node_id:
                    directory_id = voter.directory_id
            self._write_first_snapshot(path, voters)
        meta = MetaProperties(cluster_id, self.config.node_id, directory_id)
        meta_properties.write(self.files, path, meta, self.clock.now_ms())
        return directory_id

    def _write_first_snapshot(self, path: str, voters: list[Voter]) -> None:
        from pylogd.metadata.snapshot import snapshot_batches, write_snapshot

        last_contained_ms = self.clock.now_ms()
        directory = f"{path}/{METADATA_PARTITION}"
        self.files.mkdirs(directory)
        batches = snapshot_batches(
            iter(()),
            epoch=0,
            last_contained_timestamp_ms=last_contained_ms,
            now_ms=self.clock.now_ms(),
            kraft_version=1,
            voters=voters_record(voters),
        )
        write_snapshot(self.files, f"{directory}/{FIRST_SNAPSHOT}", batches)
        self.files.sync_dir(path)

    def _refuse_orphans(self, path: str) -> None:
        if not self.files.is_dir(path):
            return
        for name in self.files.listdir(path):
            number = name.rpartition("-")[2]
            partition = f"{path}/{name}"
            if not number.isdigit() or not self.files.is_dir(partition):
                continue
            if any(entry.endswith(".log") for entry in self.files.listdir(partition)):
                raise FormatError(
                    f"log directory {path} has data in {name} but no {meta_properties.FILE_NAME}; "
                    "restore that file, or empty the directory to start anew"
                )

    def _complete_old(self, cluster_id: str) -> None:
        """Files from before directory ids existed get one, as Kafka does at start-up."""
        taken = {meta.directory_id for meta in self.found.values() if meta.directory_id is not None}
        for path, meta in self.found.items():
            if meta.directory_id is None or meta.version != 1:
                directory_id = meta.directory_id or self._new_id(taken)
                taken.add(directory_id)
                self.found[path] = MetaProperties(cluster_id, self.config.node_id, directory_id)
                meta_properties.write(self.files, path, self.found[path], self.clock.now_ms())

    def is_alone(self) -> bool:
        """Whether no other node can have a say in which cluster this one belongs to."""
        config = self.config
        if not config.is_controller:
            return False
        if config.voters:
            return set(config.voters) == {config.node_id}
        mine = config.advertised_controller_listeners
        for host, port in config.bootstrap_servers:
            if not any(same_place(endpoint, host, port) for endpoint in mine):
                return False
        return True

    def standalone_voter(self) -> Voter:
        """This node as the only voter of a new dynamic quorum."""
        if not self.config.is_controller:
            raise FormatError("a standalone quorum needs a node with the controller role")
        endpoint = self.config.advertised_controller_listeners[0]
        host = endpoint.host if endpoint.host not in ("", "::") else "localhost"
        return Voter(self.config.node_id, self._new_id(set()), Endpoint(endpoint.name, host, endpoint.port))

    def new_id_text(self) -> str:
        return uuids.to_text(self._new_id(set()))

    def _new_id(self, taken: set[bytes]) -> bytes:
        """A random (version 4) uuid that is not reserved, not taken, and does not print with a leading dash."""
        while True:
            value = uuids.version_4(self.random_bytes(16))
            if value not in taken and not uuids.is_reserved(value):
                return value


def same_place(endpoint: Endpoint, host: str, port: int) -> bool:
    loopback = ("localhost", "127.0.0.1", "::1")
    same_host = endpoint.host in ("", "0.0.0.0", "::", host) or (endpoint.host in loopback and host in loopback)
    return same_host and endpoint.port in (port, 0)


def parse_initial_controllers(text: str, listener_name: str) -> list[Voter]:
    """`id@host:port:directory-id` entries, as kafka-storage.sh takes them."""
    voters = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        identity, at, rest = entry.partition("@")
        address, _, directory = rest.rpartition(":")
        host, _, port = address.rpartition(":")
        try:
            if not at or not host:
                raise ValueError("a part is missing")
            endpoint = Endpoint(listener_name, host.strip("[]"), int(port))
            voters.append(Voter(int(identity), uuids.from_text(directory), endpoint))
        except ValueError as error:
            raise FormatError(f"initial controller {entry}: expected id@host:port:directory-id ({error})") from None
    return voters


def voters_record(voters: list[Voter]) -> VotersRecord:
    from pylogd.protocol.messages import control_records as c

    return c.VotersRecord(
        version=0,
        voters=[
            c.Voter(
                voter_id=voter.node_id,
                voter_directory_id=voter.directory_id,
                endpoints=[c.Endpoint(name=voter.endpoint.name, host=voter.endpoint.host, port=voter.endpoint.port)],
                kraft_version_feature=c.KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
            )
            for voter in voters
        ],
    )


def bootstrap_batches(clock: Clock) -> Iterator[bytearray]:
    """`bootstrap.checkpoint`: header, the feature levels of a new cluster, footer; offsets count from 0, epoch is 0."""
    from pylogd.metadata import feature_levels
    from pylogd.metadata.record_batches import control_batch, metadata_batch
    from pylogd.protocol.control import ControlType
    from pylogd.protocol.messages import control_records as c
    from pylogd.protocol.messages.metadata_records import FeatureLevelRecord

    header = c.SnapshotHeaderRecord(version=0, last_contained_log_timestamp=0)
    head = [(ControlType.SNAPSHOT_HEADER, header, 0)]
    yield control_batch(head, base_offset=0, epoch=0, timestamp_ms=clock.now_ms())
    levels = feature_levels.default_levels(feature_levels.METADATA_LATEST)
    records = [(FeatureLevelRecord(name=name, feature_level=level), 0) for name, level in levels.items()]
    yield metadata_batch(records, base_offset=1, epoch=0, timestamp_ms=clock.now_ms())
    footer = [(ControlType.SNAPSHOT_FOOTER, c.SnapshotFooterRecord(version=0), 0)]
    yield control_batch(footer, base_offset=1 + len(records), epoch=0, timestamp_ms=clock.now_ms())
