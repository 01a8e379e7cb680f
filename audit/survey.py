"""What lies in a data directory: its partitions, and what its checkpoints say about them.

The checkpoints are read before any partition, because that is the side on which a running broker is safe: what they
say was true of the files then, and the files only grow beyond it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from pylogd.audit.model import Finding, Kind, Replica
from pylogd.audit.policies import compacted_topics
from pylogd.metadata.topic_names import CLUSTER_METADATA_TOPIC, INTERNAL_TOPICS
from pylogd.protocol.errors import KafkaError, ProtocolError
from pylogd.runtime.files import FileSystem
from pylogd.storage import checkpoint_file
from pylogd.storage.checkpoint_file import TopicPartition
from pylogd.storage.directories.directory import CLEAN_SHUTDOWN_FILE, META_PROPERTIES_FILE, LogDirectory
from pylogd.storage.segments.segment import LOG_SUFFIX, SWAP_SUFFIX


class NoDataDirectory(Exception):
    """A path that cannot be audited; the message says why."""


@dataclass(slots=True)
class Survey:
    directory: str
    replicas: list[Replica]
    compacted: set[str]
    findings: list[Finding]


def survey_or_reason(path: str) -> Survey | str:
    """Answers instead of raising: what another process raises arrives in that machinery's own words."""
    try:
        return survey(path)
    except NoDataDirectory as error:
        return str(error)


def survey(path: str) -> Survey:
    """NoDataDirectory when this is none."""
    path = os.path.abspath(path)
    if not os.path.isdir(path):
        raise NoDataDirectory(f"{path}: no such directory")
    findings: list[Finding] = []
    clean = os.path.exists(f"{path}/{CLEAN_SHUTDOWN_FILE}")
    cleaned = _table(path, checkpoint_file.CLEANER_OFFSET, findings)
    recovery_points = _table(path, checkpoint_file.RECOVERY_POINT, findings)
    high_watermarks = _table(path, checkpoint_file.HIGH_WATERMARK, findings)
    partitions, leaving = partition_directories(path)
    if not partitions and not os.path.exists(f"{path}/{META_PROPERTIES_FILE}"):
        raise NoDataDirectory(f"{path}: neither partitions nor {META_PROPERTIES_FILE} in it; is it one of log.dirs?")
    compacted = _compacted(path, findings) | {topic for topic, _ in cleaned}
    node = _node(path)
    replicas = []
    for key in sorted(partitions):
        topic, partition = key
        bases, size = _segments(f"{path}/{topic}-{partition}")
        active = max(bases, default=0)
        # Where a broker did not stop in good order, a compaction may have gone further than its checkpoint says.
        cleaned_to = cleaned.get(key, 0) if clean or topic not in compacted else active
        replicas.append(
            Replica(
                topic=topic,
                partition=partition,
                directory=path,
                node=node,
                clean=clean,
                first_offset=min(bases, default=0),
                active_base=active,
                size=size,
                high_watermark=high_watermarks.get(key),
                recovery_point=recovery_points.get(key),
                cleaned_to=cleaned_to,
            )
        )
    if clean:
        for topic, partition in sorted(set(high_watermarks) - set(partitions)):
            if topic not in leaving:
                text = f"{checkpoint_file.HIGH_WATERMARK} has {topic}-{partition}, and there is no such directory"
                findings.append(Finding(Kind.MISSING_PARTITION, text, f"{topic}-{partition}"))
    return Survey(path, replicas, compacted, findings)


def _table(path: str, name: str, findings: list[Finding]) -> dict[TopicPartition, int]:
    """One of the checkpoints, empty when it cannot be read."""
    try:
        return checkpoint_file.read_offsets(FileSystem(), f"{path}/{name}")
    except checkpoint_file.CheckpointError as error:
        findings.append(Finding(Kind.UNREADABLE, str(error), name))
        return {}


def _compacted(path: str, findings: list[Finding]) -> set[str]:
    """The topics that the cluster metadata here calls compacted."""
    try:
        return compacted_topics(f"{path}/{CLUSTER_METADATA_TOPIC}-0")
    except (KafkaError, ProtocolError, OSError) as error:
        text = f"the snapshot of the cluster metadata cannot be read, so gaps of compacted topics count: {error}"
        findings.append(Finding(Kind.UNREADABLE, text, f"{CLUSTER_METADATA_TOPIC}-0"))
        return set(INTERNAL_TOPICS)


def _segments(path: str) -> tuple[dict[int, str], int]:
    """The log files of a partition, and their size."""
    try:
        bases = segment_bases(path)
        return bases, sum(os.path.getsize(f"{path}/{name}") for name in bases.values())
    except FileNotFoundError:
        # Deleted, or one of its segments was, by the broker that runs there; the check looks again.
        return {}, 0


def partition_directories(path: str) -> tuple[list[TopicPartition], set[str]]:
    """The partitions, that of the cluster metadata too, and the topics that have directories on their way out."""
    directory = LogDirectory(FileSystem(), path)
    directory.list_partitions()
    partitions = list(directory.partitions)
    if os.path.isdir(f"{path}/{CLUSTER_METADATA_TOPIC}-0"):
        partitions.append((CLUSTER_METADATA_TOPIC, 0))
    return partitions, {name.rpartition("-")[0].rpartition("-")[0] for name in directory.doomed}


def segment_bases(path: str) -> dict[int, str]:
    """Base offset -> name of the log file. A file that compaction was about to swap in replaces the one it is named
    after."""
    bases: dict[int, str] = {}
    for name in sorted(os.listdir(path)):
        stem, _, suffix = name.partition(".")
        if stem.isdigit() and f".{suffix}" in (LOG_SUFFIX, LOG_SUFFIX + SWAP_SUFFIX):
            bases[int(stem)] = name
    return bases


def _node(path: str) -> str:
    """The id of the node that owns the directory, or else the path."""
    try:
        with open(f"{path}/{META_PROPERTIES_FILE}", encoding="latin-1") as file:
            for line in file:
                name, _, value = line.partition("=")
                if name.strip() == "node.id":
                    return value.strip()
    except FileNotFoundError:
        return path
    return path
