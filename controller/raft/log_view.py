"""The metadata log as the core sees it, and the rules by which two logs are compared.

`controller/quorum/raft_log.py` is the real one, the simulator has one in memory. Writing does not mean durable: the
core asks for a flush in its output and is told when it is done.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from pylogd.protocol import batch as batches
from pylogd.protocol.errors import KafkaError


class OffsetAndEpoch(NamedTuple):
    """A place in the log, or the id of a snapshot: the first offset it does not contain, and the epoch before that."""

    offset: int
    epoch: int


#: Written by formatting; it holds the first voters and no part of the log, so nobody fetches it.
BOOTSTRAP_SNAPSHOT = OffsetAndEpoch(0, 0)


class LogFull(KafkaError):
    """There is no room for what was to be appended; the log is as it was before."""


class RaftLog(Protocol):
    """Batches in and out, and snapshots beside them. Both kinds of append may raise LogFull."""

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def last_epoch(self) -> int:
        """Epoch of the last record, of the snapshot when there is no record behind it, or 0."""

    @property
    def earliest_snapshot(self) -> OffsetAndEpoch | None: ...

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None: ...

    def append(self, batch: bytearray, epoch: int) -> None:
        """Writes a batch of this leader at the end of the log."""

    def append_fetched(self, records: bytes | memoryview) -> None:
        """Writes whole batches of the leader that continue this log."""

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Whole batches from `offset` on, at least one if there is any, committed or not."""

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """The largest epoch of the log that is not above `epoch`, and where it ends."""

    def truncate_to(self, offset: int) -> None: ...

    def snapshot_size(self, snapshot_id: OffsetAndEpoch) -> int | None:
        """None when there is no such snapshot."""

    def read_snapshot(self, snapshot_id: OffsetAndEpoch, position: int, max_bytes: int) -> bytes: ...

    def write_snapshot(self, snapshot_id: OffsetAndEpoch, position: int, data: bytes | memoryview) -> None:
        """A piece of a snapshot that is being fetched; one at position 0 starts it anew."""

    def install_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """The fetched snapshot is whole: it is durable, and the log empty and starting at its end, on return."""


class Match(NamedTuple):
    """How a replica's end compares with the leader's log: valid, or cut back to `diverging`, or start at `snapshot`."""

    diverging: OffsetAndEpoch | None = None
    snapshot: OffsetAndEpoch | None = None

    @property
    def valid(self) -> bool:
        return self.diverging is None and self.snapshot is None


def match(log: RaftLog, offset: int, epoch: int) -> Match:
    """Whether a log that ends at `offset` with a record of `epoch` is a prefix of ours."""
    latest = log.latest_snapshot
    if offset == 0 and latest is not None and latest != BOOTSTRAP_SNAPSHOT:
        # Reading the newest snapshot is shorter than reading everything it stands for.
        return Match(snapshot=latest)
    start = log.start_offset
    if start == 0 and offset == 0:
        return Match()
    earliest = log.earliest_snapshot
    if earliest is not None and (
        offset < start or (offset == start and epoch != earliest.epoch) or epoch < earliest.epoch
    ):
        return Match(snapshot=latest)
    end = log.end_offset_for_epoch(epoch)
    if end.epoch != epoch or end.offset < offset:
        return Match(diverging=end)
    return Match()


def truncation_offset(log: RaftLog, diverging: OffsetAndEpoch) -> int:
    """How much of our log may agree with a leader's whose largest epoch up to ours ended at `diverging`."""
    if diverging.epoch == 0:
        return min(diverging.offset, log.end_offset)
    local = log.end_offset_for_epoch(diverging.epoch)
    return min(local.offset, diverging.offset) if local.epoch == diverging.epoch else local.offset


def appendable(records: bytes | memoryview, end_offset: int, epoch: int) -> memoryview:
    """The whole, sound batches at the start of `records` that continue a log at `end_offset`. A batch of an epoch above
    the one that was fetched with is not taken: its leader must be followed first."""
    view = memoryview(records)
    end = 0
    for pos, header in batches.iter_headers(view):
        stop = pos + header.length
        if header.base_offset != end_offset or header.partition_leader_epoch > epoch or stop > len(view):
            break
        if not batches.check_crc(view, pos, stop):
            break
        end_offset = header.next_offset
        end = stop
    return view[:end]
