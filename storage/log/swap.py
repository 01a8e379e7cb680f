"""Replacing segments by compacted ones, so that a crash at any point leaves either the old ones or the new ones.

Order: `.cleaned` files are complete and synced; they become `.swap` (last segment first), the old ones become
`.deleted`, `.swap` files take the final names. While loading, any `.cleaned` file means the swap had not been decided,
and `.swap` files from the same offset on are dropped with it; `.swap` files alone mean it had, and the old segments
they cover go. A directory's changes reach the disk in the order in which they were made, and the files of the old
segments are removed only after a sync of the directory, in a worker: nothing here waits for the disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pylogd.storage.log.removal import delete_segments
from pylogd.storage.segments.segment import SWAP_SUFFIX, Segment

if TYPE_CHECKING:
    from pylogd.storage.log.log_state import LogState


def replace_segments(log: LogState, new: list[Segment], old: list[Segment]) -> None:
    """`new` are synced segments with the suffix `.cleaned` that hold what is left of `old`, which are closed segments
    of the log. Readers see one set or the other."""
    new = sorted(new, key=lambda segment: segment.base_offset)
    bases = frozenset(segment.base_offset for segment in new)
    with log.guarded("swapping compacted segments"):
        for segment in reversed(new):
            segment.change_suffix(SWAP_SUFFIX)
        delete_segments(log, sorted(old, key=lambda segment: segment.base_offset), keep_snapshots=bases)
        for segment in new:
            segment.change_suffix("")
            log.segments.add(segment)
    log.generation += 1
