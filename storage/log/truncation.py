"""Cutting the end of a log: a follower drops what its leader does not have.

Crash policy: the recovery point is lowered on disk before anything is cut. Whole segments are durably gone before
anything is appended: one that came back would continue the new log with the old one's records. Segments go from the
last to the first, so that a crash in between leaves a log without a hole; the leader epochs behind the end are cut
again when the log is loaded. The cut inside the last segment is not synced: should a crash undo it, recovery finds the
old batches and takes the epochs from them, so that the next leader cuts them off again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pylogd.storage.log.removal import delete_segments
from pylogd.storage.producers.producer_replay import replay_log
from pylogd.storage.segments.segment import Segment

if TYPE_CHECKING:
    from pylogd.storage.log.log_state import LogState

logger = logging.getLogger(__name__)


def truncate_to(log: LogState, offset: int) -> bool:
    if offset < 0:
        raise ValueError(f"cannot truncate {log.name} to a negative offset ({offset})")
    if offset >= log.log_end_offset:
        log.epochs.truncate_from_end(log.log_end_offset)
        return False
    if offset < log.high_watermark:
        logger.warning("%s: truncating to offset %d below the high watermark %d", log.name, offset, log.high_watermark)
    else:
        logger.info("%s: truncating to offset %d", log.name, offset)
    if log.segments.first.base_offset > offset:
        truncate_fully_and_start_at(log, offset)
        return True
    with log.guarded("truncating"):
        _lower_recovery_point(log, offset)
        log.generation += 1
        log.truncations += 1
        doomed = [segment for segment in log.segments if segment.base_offset > offset]
        if doomed:
            delete_segments(log, doomed[::-1])
            log.environment.files.sync_dir(log.directory)
        log.activate(log.segments.last)
        log.active.truncate_to(offset)
        log.log_end_offset = offset
        log.log_start_offset = min(log.log_start_offset, offset)
        log.high_watermark = min(log.high_watermark, offset)
        log.epochs.truncate_from_end(offset)
        log.forget_epoch()
        replay_log(log.producers, log.segments, log.log_start_offset, offset, log.environment.clock.now_ms())
    log.environment.truncated(log, offset)
    return True


def truncate_fully_and_start_at(log: LogState, offset: int, log_start_offset: int | None = None) -> None:
    logger.info("%s: truncating everything, the log starts again at offset %d", log.name, offset)
    with log.guarded("truncating"):
        _lower_recovery_point(log, min(offset, log.log_start_offset))
        log.generation += 1
        log.truncations += 1
        delete_segments(log, log.segments.snapshot()[::-1])
        log.environment.files.sync_dir(log.directory)
        segment = Segment(log.environment, log.directory, offset, log.config)
        segment.create(log.config.segment_bytes if log.config.preallocate else 0)
        log.segments.add(segment)
        log.activate(segment)
        log.epochs.clear()
        log.forget_epoch()
        log.producers.truncate_fully_and_start_at(offset)
        log.log_end_offset = offset
        log.log_start_offset = offset if log_start_offset is None else log_start_offset
        log.recovery_point = log.high_watermark = offset
    log.environment.truncated(log, offset)


def _lower_recovery_point(log: LogState, offset: int) -> None:
    if log.recovery_point > offset:
        log.recovery_point = offset
        log.environment.recovery_point_lowered(log)
