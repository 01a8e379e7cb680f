"""The simulated disk of one replica: a metadata log in memory that loses what was not flushed, and the hard state.

Crash model. A flush makes the log durable as it was when the flush began. When the power fails, the replica comes back
with its durable log and any number of the batches that were written behind it; a truncation that was not flushed may be
undone. When only the process dies, everything written is still there. Hard state and snapshots are written atomically.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from pylogd.controller.raft.log_view import OffsetAndEpoch
from pylogd.controller.raft.output import HardState
from pylogd.protocol import batch as batches
from pylogd.storage.log.leader_epochs import EpochCache


class StoredBatch(NamedTuple):
    base_offset: int
    next_offset: int
    epoch: int
    data: bytes


class SimulatedLog:
    """What one process sees of the disk. Implements `RaftLog`."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._epochs = EpochCache(None, "")  # type: ignore[arg-type]
        self.batches = list(disk.written)
        for batch in self.batches:
            self._epochs.assign(batch.epoch, batch.base_offset)

    @property
    def start_offset(self) -> int:
        return self._disk.start_offset

    @property
    def end_offset(self) -> int:
        return self.batches[-1].next_offset if self.batches else self.start_offset

    @property
    def last_epoch(self) -> int:
        snapshot = self.latest_snapshot
        if self.batches:
            return self._epochs.latest
        return 0 if snapshot is None else snapshot.epoch

    @property
    def earliest_snapshot(self) -> OffsetAndEpoch | None:
        return min(self._disk.snapshots, default=None)

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        return max(self._disk.snapshots, default=None)

    def _store(self, data: bytes) -> None:
        view = memoryview(data)
        for pos, header in batches.iter_headers(view):
            assert header.base_offset == self.end_offset, (header.base_offset, self.end_offset)
            raw = bytes(view[pos : pos + header.length])
            epoch = header.partition_leader_epoch
            self.batches.append(StoredBatch(header.base_offset, header.next_offset, epoch, raw))
            self._epochs.assign(epoch, header.base_offset)
        self._disk.written = list(self.batches)

    def append(self, batch: bytearray, epoch: int) -> None:
        self._store(bytes(batch))

    def append_fetched(self, records: bytes | memoryview) -> None:
        self._store(bytes(records))

    def read(self, offset: int, max_bytes: int) -> bytes:
        found: list[bytes] = []
        size = 0
        for batch in self.batches:
            if batch.next_offset > offset:
                size += len(batch.data)
                if found and size > max_bytes:
                    break
                found.append(batch.data)
        return b"".join(found)

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        found, end = self._epochs.end_offset_for(epoch, self.end_offset)
        if found < 0:
            return OffsetAndEpoch(self.end_offset, self.last_epoch)
        earliest = self.earliest_snapshot
        if earliest is not None and end == earliest.offset and found == epoch:
            return earliest
        return OffsetAndEpoch(end, found)

    def truncate_to(self, offset: int) -> None:
        self.batches = [batch for batch in self.batches if batch.next_offset <= offset]
        self._epochs.truncate_from_end(offset)
        self._disk.written = list(self.batches)

    def snapshot_size(self, snapshot_id: OffsetAndEpoch) -> int | None:
        data = self._disk.snapshots.get(snapshot_id)
        return None if data is None else len(data)

    def read_snapshot(self, snapshot_id: OffsetAndEpoch, position: int, max_bytes: int) -> bytes:
        return self._disk.snapshots[snapshot_id][position : position + max_bytes]

    def write_snapshot(self, snapshot_id: OffsetAndEpoch, position: int, data: bytes | memoryview) -> None:
        if position == 0:
            self._disk.partial = b""
        assert position == len(self._disk.partial)
        self._disk.partial += bytes(data)

    def install_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        self._disk.snapshots = {snapshot_id: self._disk.partial}
        self.batches = []
        self._epochs.clear()
        self._disk.start_offset = snapshot_id.offset
        self._disk.written, self._disk.durable = [], []

    def keep_snapshot(self, snapshot_id: OffsetAndEpoch, data: bytes) -> None:
        """A snapshot of this replica's own state; older ones go, with the log before it."""
        self._disk.snapshots = {snapshot_id: data}
        self._disk.start_offset = snapshot_id.offset
        self.batches = [batch for batch in self.batches if batch.base_offset >= snapshot_id.offset]
        self._epochs.truncate_from_start(snapshot_id.offset)
        if not self.batches:
            self._epochs.clear()
        self._disk.written = list(self.batches)
        self._disk.durable = [batch for batch in self._disk.durable if batch.base_offset >= snapshot_id.offset]


class Disk:
    """What outlives the process."""

    def __init__(self, snapshots: dict[OffsetAndEpoch, bytes]) -> None:
        self.hard_state: HardState | None = None
        self.start_offset = 0
        self.snapshots = snapshots
        self.partial = b""
        self.written: list[StoredBatch] = []
        self.durable: list[StoredBatch] = []
        self._flushes = self._flushed = 0

    def begin_flush(self) -> tuple[int, list[StoredBatch]]:
        """What a flush that starts now makes durable when it is done."""
        self._flushes += 1
        return self._flushes, list(self.written)

    def end_flush(self, image: tuple[int, list[StoredBatch]]) -> None:
        number, written = image
        if number > self._flushed:
            self._flushed = number
            self.durable = [batch for batch in written if batch.base_offset >= self.start_offset]

    @property
    def durable_end(self) -> int:
        return self.durable[-1].next_offset if self.durable else self.start_offset

    def flushed_offset(self) -> int:
        """How much of what is written now is known to be durable."""
        end = self.start_offset
        for ours, durable in zip(self.written, self.durable):
            if ours is not durable and ours != durable:
                break
            end = ours.next_offset
        return end

    def power_loss(self, rng: Random) -> None:
        common = 0
        while common < min(len(self.written), len(self.durable)) and self.written[common] == self.durable[common]:
            common += 1
        truncation_lost = common < len(self.durable) and rng.random() < 0.5
        if truncation_lost:
            self.written = list(self.durable)
        else:
            kept = common + rng.randint(0, len(self.written) - common)
            self.written = self.written[:kept]
            if common == len(self.durable):
                kept = max(kept, common)
        # What came back was read from the disk.
        self.durable = list(self.written)

    def holds(self, batch: StoredBatch) -> bool:
        """Whether the batch is on stable storage, itself or in a snapshot."""
        if batch.next_offset <= self.start_offset:
            return True
        return any(stored == batch for stored in reversed(self.durable))
