"""Do the replicas of a partition hold the same bytes? What two replicas have below both their high watermarks was
committed, and must agree to the last bit; a tail beyond may differ, and is cut when the replicas meet again.

Each replica is read once, where it is, and only digests travel. The offsets are cut into blocks, at every replica's
high watermark and start too, so that each pair has whole blocks up to the lower of its watermarks. Where digests
differ, the batches of that one block are digested one by one, to name the first that differs.

Compaction rewrites each replica by itself: what it may have touched in any of them is not compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import xxhash
from pylogd.audit.model import Finding, Kind, PartitionReport, Replica, ReplicaReport, Task
from pylogd.audit.survey import segment_bases
from pylogd.protocol.errors import KafkaError
from pylogd.runtime.files import FileSystem
from pylogd.storage.segments.scan import scan_batches

BLOCKS_MAX = 1024


def plan(replicas: list[Replica], compacted: bool) -> list[Task]:
    """The checks of the replicas of one partition."""
    cleaned_to = max(replica.cleaned_to for replica in replicas) if compacted else 0
    # A single replica may have copied its gaps from a leader that nobody showed us.
    gaps_to = 1 << 63 if compacted and len(replicas) == 1 else cleaned_to
    cuts = _cuts(replicas, cleaned_to)
    return [Task(replica, compacted, gaps_to, cuts) for replica in replicas]


def _cuts(replicas: list[Replica], start: int) -> list[int]:
    marks = sorted(replica.high_watermark for replica in replicas if replica.high_watermark is not None)
    if len(marks) < 2:
        return []
    # Above the second highest mark there are no two to compare.
    end = marks[-2]
    start = max(start, sorted(replica.first_offset for replica in replicas)[1])
    if start >= end:
        return []
    step = 1
    while (end - start) // step > BLOCKS_MAX:
        step *= 2
    edges = {*range(start, end, step), *marks, *(replica.first_offset for replica in replicas), end}
    return sorted(edge for edge in edges if start <= edge <= end)


@dataclass(slots=True)
class Block:
    """Offsets [start, end) whose digests differ between these replicas."""

    start: int
    end: int
    replicas: list[Replica]


def compare(reports: list[ReplicaReport], cuts: list[int]) -> tuple[tuple[int, int] | None, list[Block]]:
    """The offsets that were compared, and the blocks that differ."""
    first, last = -1, -1
    differing = []
    for start, end in pairwise(cuts):
        sharing = [report for report in reports if _has(report, start, end)]
        if len(sharing) < 2:
            continue
        first, last = start if first < 0 else first, end
        # A block without batches has no digest.
        if len({report.digests.get(start) for report in sharing}) > 1:
            differing.append(Block(start, end, [report.replica for report in sharing]))
    return (first, last) if first >= 0 else None, differing


def _has(report: ReplicaReport, start: int, end: int) -> bool:
    mark = report.replica.high_watermark
    return (
        mark is not None
        and mark >= end
        and report.start <= start
        and report.end >= end
        and not any(damaged < end and start < until for damaged, until in report.damage)
    )


@dataclass(slots=True)
class Look:
    """One replica's batches of a block, to be digested one by one."""

    replica: Replica
    compacted: bool
    start: int
    end: int


def look(task: Look) -> list[tuple[int, bytes]] | None:
    """(base offset, digest) of each batch of the block; None when it is not there any more, or compaction has come by
    since."""
    path = task.replica.path
    try:
        bases = segment_bases(path)
        order = sorted(bases)
        if not order or order[0] > task.start or (task.compacted and not task.replica.clean and order[-1] > task.start):
            return None
        return list(_digests(path, [bases[base] for base in order], order, task))
    except (FileNotFoundError, KafkaError):
        # It was whole a moment ago: a broker is at work on it.
        return None


def _digests(path: str, names: list[str], order: list[int], task: Look) -> Iterable[tuple[int, bytes]]:
    files = FileSystem()
    for number, name in enumerate(names):
        following = order[number + 1] if number + 1 < len(order) else task.end
        if following <= task.start or order[number] >= task.end:
            continue
        file = files.file(f"{path}/{name}", readonly=True)
        try:
            for _, header, batch in scan_batches(file, 0, file.size()):
                if header.base_offset >= task.end:
                    break
                if header.base_offset >= task.start:
                    yield header.base_offset, xxhash.xxh3_128_digest(batch)
        finally:
            file.close()


def judge(partition: PartitionReport, block: Block, batches: list[list[tuple[int, bytes]] | None], blocks: int) -> None:
    """Adds what the look at the first differing block showed."""
    seen = [(replica, dict(found)) for replica, found in zip(block.replicas, batches) if found is not None]
    for offset in sorted({offset for _, found in seen for offset in found}):
        digests = [found.get(offset) for _, found in seen]
        if len(set(digests)) == 1:
            continue
        [(usual, votes)] = Counter(digests).most_common(1)
        odd = [replica.node for (replica, _), digest in zip(seen, digests) if digest != usual]
        others = [replica.node for (replica, _), digest in zip(seen, digests) if digest == usual]
        if votes * 2 > len(seen):
            text = f"node {', '.join(odd)} differs from node {', '.join(others)} at offset {offset}"
        else:
            text = f"nodes {', '.join(replica.node for replica, _ in seen)} differ at offset {offset}"
        more = f", {blocks} blocks of offsets differ" if blocks > 1 else ""
        partition.findings.append(Finding(Kind.DIVERGED, text + more, offset=offset))
        return
