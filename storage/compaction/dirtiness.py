"""How dirty a log is: what compaction could work on, and whether it is due.

A log is dirty behind the offset up to which it was last compacted, and may be compacted up to the segment that holds
the first of: its active segment, its last stable offset, the first segment younger than `min.compaction.lag.ms`. It is
due when the dirty bytes are more than `min.cleanable.dirty.ratio` of all, or when a dirty segment is older than
`max.compaction.lag.ms`.
"""

from __future__ import annotations

import logging
from itertools import pairwise

from pylogd.storage.log.log import Log
from pylogd.storage.log_config import INT64_MAX
from pylogd.storage.segments.segment import Segment

logger = logging.getLogger(__name__)


class LogToClean:
    """A log, the offsets between which it is dirty and cleanable, and how much that is."""

    __slots__ = ("clean_bytes", "cleanable_bytes", "first_dirty_offset", "first_uncleanable_offset", "log", "overdue")

    def __init__(self, log: Log, first_dirty_offset: int, uncleanable_offset: int, overdue: bool) -> None:
        self.log = log
        self.first_dirty_offset = first_dirty_offset
        self.overdue = overdue
        # Segments are cleaned whole: the one that holds the uncleanable offset is left out.
        holder = log.active if uncleanable_offset >= log.active.base_offset else log.segments.floor(uncleanable_offset)
        self.first_uncleanable_offset = (holder or log.active).base_offset
        self.clean_bytes = self.cleanable_bytes = 0
        for segment, end in closed_segments(log):
            if end <= first_dirty_offset:
                self.clean_bytes += segment.size
            elif segment.base_offset < self.first_uncleanable_offset:
                self.cleanable_bytes += segment.size

    @property
    def total_bytes(self) -> int:
        return self.clean_bytes + self.cleanable_bytes

    @property
    def ratio(self) -> float:
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0

    @property
    def due(self) -> bool:
        if not self.cleanable_bytes:
            return False
        return self.overdue or self.ratio > self.log.config.min_cleanable_dirty_ratio


def closed_segments(log: Log) -> list[tuple[Segment, int]]:
    """The closed segments with the base offset of the one after each."""
    return [(segment, following.base_offset) for segment, following in pairwise(log.segments)]


def examine(log: Log, last_clean_offset: int | None, now_ms: int) -> LogToClean:
    """How dirty the log is. A checkpoint outside the log is worth nothing: everything counts as dirty then."""
    start = log.log_start_offset
    first_dirty = start if last_clean_offset is None else last_clean_offset
    if not start <= first_dirty <= log.log_end_offset:
        if first_dirty > log.log_end_offset or not log.config.delete:
            logger.warning(
                "%s: cleaner checkpoint %d lies outside the log, which starts at %d", log.name, first_dirty, start
            )
        first_dirty = start
    config = log.config
    uncleanable = min(log.last_stable_offset, log.active.base_offset)
    overdue = False
    dirty = [segment for segment, end in closed_segments(log) if end > first_dirty]
    if config.min_compaction_lag_ms > 0:
        for segment in dirty:
            if segment.largest_timestamp > now_ms - config.min_compaction_lag_ms:
                uncleanable = min(uncleanable, segment.base_offset)
                break
    if config.max_compaction_lag_ms < INT64_MAX:
        until_ms = now_ms - max(config.max_compaction_lag_ms, 0)
        overdue = any(0 < segment.first_timestamp < until_ms for segment in dirty)
    return LogToClean(log, first_dirty, max(first_dirty, uncleanable), overdue)
