"""What an audit works on and what it finds. Everything here is plain data that travels between processes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

#: Findings of one replica beyond this are counted and not kept: a disk full of garbage must not fill the memory.
FINDINGS_MAX = 50


class Kind:
    """What can be wrong."""

    UNREADABLE = "unreadable"  # the file system refused
    CORRUPT = "corrupt"  # bytes that are no batch, or a batch whose checksum does not hold
    TORN = "torn"  # the file ends inside a batch
    OFFSETS = "offsets"  # offsets that go back, or lie outside their segment
    GAP = "gap"  # offsets are missing inside a segment, and no compaction explains it
    MISSING_SEGMENT = "missing-segment"  # the same between two segments
    MISSING_PARTITION = "missing-partition"  # a checkpoint knows it, and its directory is not there
    SHORT = "short"  # the log ends below an offset that is known to have been on this disk
    EPOCHS = "epochs"  # leader epochs that go back, or are not those of leader-epoch-checkpoint
    INDEX = "index"
    TIME_INDEX = "timeindex"
    TXN_INDEX = "txnindex"
    DIVERGED = "diverged"  # replicas hold different bytes below the high watermark


@dataclass(slots=True)
class Finding:
    kind: str
    message: str
    file: str = ""
    offset: int | None = None


@dataclass(slots=True)
class Replica:
    """One partition directory, and what the checkpoints of its data directory say about it; None: they say nothing."""

    topic: str
    partition: int
    directory: str
    node: str
    #: Stopped in good order: the checkpoints are exact, and no broker has the directory.
    clean: bool
    first_offset: int
    active_base: int
    size: int
    high_watermark: int | None
    recovery_point: int | None
    #: Up to here the cleaner may have rewritten it; 0 when it is not compacted.
    cleaned_to: int

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def path(self) -> str:
        return f"{self.directory}/{self.name}"


@dataclass(slots=True)
class Task:
    """A replica to check. Segments that are missing below `gaps_to` are compaction's doing. `cuts` are ascending
    offsets: the bytes of the batches between each two of them are digested, so that replicas are compared by that."""

    replica: Replica
    compacted: bool
    gaps_to: int
    cuts: list[int]


@dataclass(slots=True)
class ReplicaReport:
    replica: Replica
    segments: int = 0
    batches: int = 0
    size: int = 0
    start: int = 0
    end: int = 0
    findings: list[Finding] = field(default_factory=list)
    #: Findings that were not kept.
    more: int = 0
    #: Offsets [from, to) that a finding is about: comparing them again would report the same damage twice.
    damage: list[tuple[int, int]] = field(default_factory=list)
    #: Digest of the batches from each cut to the next.
    digests: dict[int, bytes] = field(default_factory=dict)

    def find(self, kind: str, message: str, file: str = "", offset: int | None = None) -> None:
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(Finding(kind, message, file, offset))
        else:
            self.more += 1


@dataclass(slots=True)
class PartitionReport:
    topic: str
    partition: int
    replicas: list[ReplicaReport]
    #: The offsets [from, to) that at least two replicas have below their high watermarks; None: nothing to compare.
    compared: tuple[int, int] | None = None
    #: About the replicas together.
    findings: list[Finding] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def clean(self) -> bool:
        return not self.findings and not any(replica.findings for replica in self.replicas)

    def to_json(self) -> dict[str, Any]:
        replicas = [
            {
                "node": each.replica.node,
                "directory": each.replica.directory,
                "segments": each.segments,
                "batches": each.batches,
                "bytes": each.size,
                "start": each.start,
                "end": each.end,
                "high_watermark": each.replica.high_watermark,
                "findings": [asdict(finding) for finding in each.findings],
                "more_findings": each.more,
            }
            for each in self.replicas
        ]
        return {
            "topic": self.topic,
            "partition": self.partition,
            "clean": self.clean,
            "compared": self.compared,
            "replicas": replicas,
            "findings": [asdict(finding) for finding in self.findings],
        }


@dataclass(slots=True)
class Report:
    partitions: list[PartitionReport]
    #: About the directories themselves, by path.
    directories: dict[str, list[Finding]] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        return not self.findings

    @property
    def findings(self) -> list[tuple[str, Finding]]:
        """(where, what) of everything that is wrong."""
        found = [(path, finding) for path, findings in self.directories.items() for finding in findings]
        for partition in self.partitions:
            for each in partition.replicas:
                found += [(each.replica.path, finding) for finding in each.findings]
            found += [(partition.name, finding) for finding in partition.findings]
        return found

    @property
    def size(self) -> int:
        return sum(each.size for partition in self.partitions for each in partition.replicas)
