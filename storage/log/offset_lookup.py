"""ListOffsets: from a timestamp, or from what a special timestamp stands for, to an offset."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pylogd.storage.log.log_state import LogState

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6


class TimestampOffset(NamedTuple):
    """`timestamp` is -1 where the question was not about time; `leader_epoch` is -1 when unknown."""

    offset: int
    timestamp: int
    leader_epoch: int


def offset_for_timestamp(log: LogState, timestamp: int, nowait: bool) -> TimestampOffset | None:
    """None when no record is that late. LATEST gives the log end: the caller knows which ceiling applies to whom."""
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        entries = log.epochs.entries()
        epoch = entries[0][0] if entries and entries[0][1] <= log.log_start_offset else -1
        return TimestampOffset(log.log_start_offset, -1, epoch)
    if timestamp == LATEST:
        return TimestampOffset(log.log_end_offset, -1, log.epochs.latest)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return TimestampOffset(-1, -1, -1)  # nothing is tiered
    if timestamp == MAX_TIMESTAMP:
        latest = max(log.segments.snapshot(), key=lambda segment: segment.max_timestamp)
        found = latest.offset_of_max_timestamp(nowait)
        return None if found is None else TimestampOffset(*found)
    for segment in log.segments.snapshot():
        if segment.largest_timestamp >= timestamp:
            found = segment.offset_for_timestamp(timestamp, log.log_start_offset, nowait)
            return None if found is None else TimestampOffset(*found)
    return None
