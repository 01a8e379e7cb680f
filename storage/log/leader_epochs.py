"""Which leader epoch wrote which offsets: (epoch, start offset) pairs, both growing, kept in `leader-epoch-checkpoint`.

Followers and consumers ask where an epoch ended to find the point up to which two logs agree.

Crash policy: an entry must be on disk before the recovery point passes its start offset, because recovery reads epochs
again only from batches behind that point. So `flush()` belongs before every advance of the recovery point; between
flushes the table on disk may lack the newest entries or still hold truncated ones, and loading cuts it to the log's
range. It may also be ahead of the log: a crash can undo a truncation and what was written after it, and leave the
table. So recovery makes it agree with the batches that it finds (`agree`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from pylogd.runtime.files import FileSystem
from pylogd.storage import checkpoint_file

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochCache:
    """The table of one log."""

    __slots__ = ("_dirty", "_epochs", "_files", "_starts", "path")

    def __init__(self, files: FileSystem, path: str) -> None:
        self._files = files
        self.path = path
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self._dirty = False

    def load(self) -> None:
        """Reads the table; entries that break the order give way to later ones, as in Kafka."""
        self._epochs, self._starts = [], []
        try:
            for epoch, start in checkpoint_file.read_table(self._files, self.path, fields=2):
                self.assign(int(epoch), int(start))
        except ValueError:
            raise checkpoint_file.CheckpointError(f"{self.path}: an epoch or offset is not a number") from None
        self._dirty = False

    @property
    def dirty(self) -> bool:
        """True when the table on disk is not the one in memory."""
        return self._dirty

    def flush(self, durable: bool = True) -> None:
        """Writes the table if it changed. May run in a worker thread while the owner goes on."""
        if self._dirty:
            self._dirty = False
            try:
                lines = [f"{epoch} {start}" for epoch, start in self.entries()]
                self._files.write_atomically(self.path, checkpoint_file.encode(lines), durable)
            except BaseException:
                self._dirty = True
                raise

    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts))

    def __len__(self) -> int:
        return len(self._epochs)

    @property
    def latest(self) -> int:
        """The newest epoch that has records, or -1."""
        return self._epochs[-1] if self._epochs else UNDEFINED_EPOCH

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Epoch `epoch` starts at `start_offset`; True when that was news. Cheap when it was not."""
        epochs = self._epochs
        if epochs and epochs[-1] == epoch and self._starts[-1] <= start_offset:
            return False
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"invalid leader epoch entry ({epoch}, {start_offset})")
        keep = len(epochs)
        while keep and (epochs[keep - 1] >= epoch or self._starts[keep - 1] >= start_offset):
            keep -= 1
        # New lists, so that a flush under way in a worker sees one table or the other.
        self._epochs, self._starts = [*epochs[:keep], epoch], [*self._starts[:keep], start_offset]
        self._dirty = True
        return True

    def agree(self, epoch: int, offset: int) -> int:
        """The log has a batch of `epoch` at `offset`; entries that say otherwise were never true of this log. Returns
        up to which offset the table says the same."""
        if self.epoch_for_offset(offset) != epoch:
            keep = bisect_right(self._epochs, epoch)
            self._epochs, self._starts = self._epochs[:keep], self._starts[:keep]
            self._dirty = True
            self.assign(epoch, offset)
        following = bisect_right(self._starts, offset)
        return self._starts[following] if following < len(self._starts) else 2**63 - 1

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(the largest epoch at or below the requested one, where it ended); (-1, -1) when nobody can know."""
        epochs = self._epochs
        if epoch == UNDEFINED_EPOCH or not epochs:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epochs[-1] == epoch:
            return epoch, log_end_offset
        higher = bisect_right(epochs, epoch)
        if higher == len(epochs):
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        # Below the first known epoch the data is gone already; the follower may start where the known ones do.
        return (epochs[higher - 1] if higher else epoch), self._starts[higher]

    def epoch_for_offset(self, offset: int) -> int | None:
        slot = bisect_right(self._starts, offset)
        return self._epochs[slot - 1] if slot else None

    def previous_epoch(self, epoch: int) -> int | None:
        slot = bisect_left(self._epochs, epoch)
        return self._epochs[slot - 1] if slot else None

    def start_offset(self, epoch: int) -> int | None:
        slot = bisect_left(self._epochs, epoch)
        return self._starts[slot] if slot < len(self._epochs) and self._epochs[slot] == epoch else None

    def truncate_from_end(self, end_offset: int) -> None:
        """Drops the epochs that start at or behind the new end of the log."""
        keep = bisect_left(self._starts, end_offset)
        if end_offset >= 0 and keep < len(self._starts):
            self._epochs, self._starts = self._epochs[:keep], self._starts[:keep]
            self._dirty = True

    def truncate_from_start(self, start_offset: int) -> None:
        """Drops the epochs before the new start of the log; the one that covers it starts there."""
        passed = bisect_right(self._starts, start_offset)
        if passed and (passed > 1 or self._starts[0] != start_offset):
            self._epochs = self._epochs[passed - 1 :]
            self._starts = [start_offset, *self._starts[passed:]]
            self._dirty = True

    def clear(self) -> None:
        if self._epochs:
            self._epochs, self._starts = [], []
            self._dirty = True

    def moved(self, path: str) -> None:
        """The log's directory was renamed."""
        self.path = path
