"""When a segment is full, old or out of room for offsets, and how the next one begins."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.storage.segments.segment import RELATIVE_OFFSET_MAX, Segment

if TYPE_CHECKING:
    from pylogd.storage.log.log_state import LogState

logger = logging.getLogger(__name__)


def roll_if_due(log: LogState, size: int, offset: int, last_offset: int, max_timestamp: int, now_ms: int) -> Segment:
    """The segment that takes `size` bytes of records from `offset` to `last_offset`: the active one, or a new one."""
    segment = log.active
    if segment.size > 0:
        timestamp_bound, now_bound = segment.roll_deadline(log.config.roll_ms)
        aged = max_timestamp > timestamp_bound or now_ms > now_bound
    else:
        aged = False
    if (
        aged
        or segment.size + size > log.config.segment_bytes
        or segment.indexes_full
        or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
    ):
        return roll(log, offset)
    return segment


def roll(log: LogState, offset: int) -> Segment:
    """Starts a segment at `offset`, at or above the log end. Every step can be repeated after a failure: the old
    segment is complete on disk before the new one exists, and the producers' state at `offset` is kept so that
    recovery of the new segment need not replay the old one."""
    old = log.active
    if offset < log.log_end_offset or offset < old.base_offset:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"Trying to roll a new log segment for {log.name} with start offset {offset} below the log end "
            f"{log.log_end_offset}",
        )
    if offset == old.base_offset:
        if old.size:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"Trying to roll a new log segment for {log.name} with start offset {offset}, which exists and is not "
                f"empty",
            )
        old.offset_index.reset()
        old.time_index.reset()
        return old
    old.become_inactive()
    log.note_closed(old)
    log.producers.map_end_offset = offset
    log.note_snapshot(log.producers.take_snapshot(durable=False))
    config = log.config
    segment = Segment(log.environment, log.directory, offset, config)
    segment.create(config.segment_bytes if config.preallocate else 0)
    log.segments.add(segment)
    log.activate(segment)
    logger.info("%s: rolled a new segment at offset %d", log.name, offset)
    log.environment.request_flush(log, offset)
    return segment
