"""Snapshots: the cluster image written out as records, so that the log before it can go and need not be replayed.

File `<end offset, 20 digits>-<epoch, 10 digits>.checkpoint` beside the log's segments. It is a run of record batches
whose offsets count from 0 inside the file: a control batch with SnapshotHeader (and with kraft.version 1 also
KRaftVersion and the voters), batches of metadata records, and a control batch with SnapshotFooter. The end offset is
the first offset that is not in the snapshot.

Crash policy: written under `<name>-<digits>.checkpoint.part`, fsynced, renamed, directory fsynced. A file without the
`.part` suffix is whole; leftovers with it, and `.deleted` ones, are removed at start.
"""

from __future__ import annotations

from collections.abc import Iterator

from pylogd.metadata import feature_levels
from pylogd.metadata.image import ClusterImage
from pylogd.metadata.record_batches import (
    ControlMessage,
    VersionedRecord,
    control_batch,
    decode_batches,
    metadata_batch,
)
from pylogd.metadata.registrations import Broker, Partition
from pylogd.protocol.control import ControlType
from pylogd.protocol.messages import control_records as c
from pylogd.protocol.messages import metadata_records as m
from pylogd.runtime.files import FileSystem

SUFFIX = ".checkpoint"
PARTIAL_SUFFIX = ".checkpoint.part"
DELETED_SUFFIX = ".checkpoint.deleted"

#: Records per batch of a snapshot, and what a batch may weigh at most before it is closed.
RECORDS_PER_BATCH = 1024


class SnapshotId:
    """End offset (exclusive) and epoch of a snapshot; sorts by age."""

    __slots__ = ("epoch", "offset")

    def __init__(self, offset: int, epoch: int) -> None:
        self.offset = offset
        self.epoch = epoch

    @property
    def name(self) -> str:
        return f"{self.offset:020d}-{self.epoch:010d}"

    @property
    def filename(self) -> str:
        return self.name + SUFFIX

    def _key(self) -> tuple[int, int]:
        return self.offset, self.epoch

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SnapshotId) and self._key() == other._key()

    def __lt__(self, other: SnapshotId) -> bool:
        return self._key() < other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"SnapshotId({self.offset}, {self.epoch})"

    @classmethod
    def parse(cls, filename: str) -> SnapshotId | None:
        """The id in a finished snapshot's file name; None for any other file."""
        if not filename.endswith(SUFFIX):
            return None
        stem = filename[: -len(SUFFIX)]
        if len(stem) != 31 or stem[20] != "-" or not (stem[:20] + stem[21:]).isdigit():
            return None
        return cls(int(stem[:20]), int(stem[21:]))


def partition_record(
    topic_id: bytes, index: int, partition: Partition, metadata_version: int, elr: bool
) -> VersionedRecord:
    """The PartitionRecord that recreates `partition`."""
    record = m.PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing),
        adding_replicas=list(partition.adding),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
    )
    if elr and partition.elr:
        record.eligible_leader_replicas = list(partition.elr)
    if elr and partition.last_known_elr:
        record.last_known_elr = list(partition.last_known_elr)
    if feature_levels.directory_assignment_supported(metadata_version):
        record.directories = list(partition.directories)
    return record, feature_levels.partition_record_version(metadata_version)


def broker_record(broker: Broker, metadata_version: int) -> VersionedRecord:
    """The RegisterBrokerRecord that recreates `broker`."""
    version = feature_levels.register_broker_record_version(metadata_version)
    record = m.RegisterBrokerRecord(
        broker_id=broker.id,
        is_migrating_zk_broker=broker.is_migrating_zk_broker,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            m.BrokerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in broker.endpoints.values()
        ],
        features=[
            m.BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in broker.features.items()
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
    )
    if version >= 3:
        record.log_dirs = list(broker.directories)
    if version >= 4 and broker.cordoned_directories is not None:
        record.cordoned_log_dirs = list(broker.cordoned_directories)
    return record, version


def image_records(image: ClusterImage) -> Iterator[VersionedRecord]:
    """Records whose replay gives `image` again. metadata.version comes first: it decides how the others are read."""
    level = image.metadata_version
    if level:
        yield m.FeatureLevelRecord(name=feature_levels.METADATA_VERSION, feature_level=level), 0
    for name, value in image.features.items():
        yield m.FeatureLevelRecord(name=name, feature_level=value), 0
    for broker in image.brokers.values():
        yield broker_record(broker, level)
    for controller in image.controllers.values():
        yield controller, 0
    elr = image.elr_enabled
    for topic in image.topics_by_id.values():
        yield m.TopicRecord(name=topic.name, topic_id=topic.id), 0
        for index, partition in enumerate(topic.partitions):
            if partition is not None:
                yield partition_record(topic.id, index, partition, level, elr)
    for (resource_type, resource_name), values in image.configs.items():
        for name, text in values.items():
            record = m.ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=text)
            yield record, 0
    for entity, quotas in image.quotas.items():
        parts = [m.EntityData(entity_type=kind, entity_name=entity_name) for kind, entity_name in entity]
        for key, quota in quotas.items():
            yield m.ClientQuotaRecord(entity=parts, key=key, value=quota, remove=False), 0
    if image.next_producer_id >= 0:
        yield m.ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id), 0
    for kept in image.access.records():
        yield kept, 0


def snapshot_batches(
    records: Iterator[VersionedRecord],
    *,
    epoch: int,
    last_contained_timestamp_ms: int,
    now_ms: int,
    kraft_version: int,
    voters: c.VotersRecord | None = None,
) -> Iterator[bytearray]:
    """The batches of a snapshot file, in order. `voters` only with kraft.version 1."""
    header = c.SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_contained_timestamp_ms)
    head: list[ControlMessage] = [(ControlType.SNAPSHOT_HEADER, header, 0)]
    if kraft_version >= 1:
        version_record = c.KRaftVersionRecord(version=0, kraft_version=kraft_version)
        head.append((ControlType.KRAFT_VERSION, version_record, 0))
        if voters is not None:
            head.append((ControlType.KRAFT_VOTERS, voters, 0))
    yield control_batch(head, base_offset=0, epoch=epoch, timestamp_ms=now_ms)
    offset = len(head)
    chunk: list[VersionedRecord] = []
    for record in records:
        chunk.append(record)
        if len(chunk) == RECORDS_PER_BATCH:
            yield metadata_batch(chunk, base_offset=offset, epoch=epoch, timestamp_ms=now_ms)
            offset += len(chunk)
            chunk = []
    if chunk:
        yield metadata_batch(chunk, base_offset=offset, epoch=epoch, timestamp_ms=now_ms)
        offset += len(chunk)
    footer = c.SnapshotFooterRecord(version=0)
    yield control_batch(
        [(ControlType.SNAPSHOT_FOOTER, footer, 0)], base_offset=offset, epoch=epoch, timestamp_ms=now_ms
    )


def write_snapshot(files: FileSystem, path: str, batches: Iterator[bytearray]) -> int:
    """Writes a snapshot file whole or not at all; returns its size. Runs on a worker."""
    directory, _, name = path.rpartition("/")
    partial = f"{directory}/{name[: -len(SUFFIX)]}-0{PARTIAL_SUFFIX}"
    if files.exists(partial):
        files.unlink(partial)
    file = files.open(partial, create=True)
    position = 0
    try:
        for batch in batches:
            file.pwrite(batch, position)
            position += len(batch)
        file.fsync()
    finally:
        file.close()
    files.rename(partial, path)
    files.sync_dir(directory)
    return position


class SnapshotContents:
    """What reading a snapshot gives beside the replayed image."""

    __slots__ = ("kraft_version", "last_contained_timestamp_ms", "voters")

    def __init__(self) -> None:
        self.kraft_version = 0
        self.voters: c.VotersRecord | None = None
        self.last_contained_timestamp_ms = 0


def replay_snapshot(data: bytes, image: ClusterImage, snapshot_id: SnapshotId) -> SnapshotContents:
    """Replays a whole snapshot file into `image`, which must be empty."""
    contents = SnapshotContents()
    for _ in replay_steps(data, image, snapshot_id, contents):
        pass
    return contents


def replay_steps(
    data: bytes, image: ClusterImage, snapshot_id: SnapshotId, contents: SnapshotContents
) -> Iterator[None]:
    """The same batch by batch, for those who have something else to do in between."""
    finished = False
    at = snapshot_id.offset - 1
    for batch in decode_batches(data):
        for record in batch.records:
            if not batch.control:
                image.replay(record, at)
            elif record.kind is ControlType.SNAPSHOT_HEADER:
                contents.last_contained_timestamp_ms = record.message.last_contained_log_timestamp
            elif record.kind is ControlType.KRAFT_VERSION:
                contents.kraft_version = record.message.kraft_version
            elif record.kind is ControlType.KRAFT_VOTERS:
                contents.voters = record.message
            elif record.kind is ControlType.SNAPSHOT_FOOTER:
                finished = True
        yield
    if not finished:
        raise ValueError(f"snapshot {snapshot_id.filename} has no footer")
    image.offset = at
    image.epoch = snapshot_id.epoch
