"""Where a follower cuts its log so that it becomes a prefix of its leader's.

The leader compares the follower's last epoch with its own history. When they differ it names the largest epoch both may
share and where that epoch ends in the leader's log. The follower looks the same epoch up in its own table and cuts at
the smaller end; if it does not know the epoch, it cuts at the end of the largest one below and asks again. Each step
removes at least one diverging epoch, so the conversation ends.
"""

from __future__ import annotations

from typing import Protocol

UNDEFINED = -1


class EpochHistory(Protocol):
    """What `truncation_offset` reads of a log."""

    log_end_offset: int
    high_watermark: int

    def offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]: ...


def truncation_offset(log: EpochHistory, leader_epoch: int, leader_end_offset: int) -> int:
    """The new log end, given (epoch, end offset) as the leader answered it."""
    end = log.log_end_offset
    if leader_end_offset == UNDEFINED:
        # The leader knows nothing about our epochs: only what is replicated for certain may stay.
        return min(log.high_watermark, end)
    if leader_epoch == UNDEFINED:
        return min(leader_end_offset, end)
    known_epoch, known_end = log.offset_for_epoch(leader_epoch)
    if known_epoch == UNDEFINED or known_end == UNDEFINED:
        # We have no epoch at or below the leader's.
        return min(leader_end_offset, end)
    if known_epoch != leader_epoch:
        # Not ours: drop all that came after the last epoch we may share, and ask again.
        return min(known_end, end)
    return min(known_end, leader_end_offset, end)


def out_of_range_offset(log_end_offset: int, leader_start_offset: int, leader_end_offset: int) -> tuple[int, bool]:
    """(where to fetch from, whether everything here is stale) after the leader refused our offset.

    A leader that ends before us was elected uncleanly: its end counts. One that starts above our end has deleted what
    we would need: we start over where it starts. Otherwise the leader has moved on meanwhile and we go on."""
    if leader_end_offset < log_end_offset:
        return leader_end_offset, False
    if leader_start_offset > log_end_offset:
        return leader_start_offset, True
    return log_end_offset, False
