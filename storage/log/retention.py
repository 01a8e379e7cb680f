"""Cutting the beginning of a log: by age, by size, and below the log start offset.

Crash policy: the log start moves first (in memory; its checkpoint follows on schedule), then whole segments are renamed
to `.deleted` in offset order and removed after `file.delete.delay.ms`. A crash in between leaves more than needed,
never a hole.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.storage.log import rolling
from pylogd.storage.log.removal import delete_segments

if TYPE_CHECKING:
    from pylogd.storage.log.log_state import LogState
    from pylogd.storage.segments.segment import Segment

logger = logging.getLogger(__name__)


def delete_old_segments(log: LogState, now_ms: int) -> int:
    """One check; which bounds apply depends on `cleanup.policy`. Returns how many segments went."""
    deleted = _delete_while(log, _below_log_start(log), "log start offset")
    if log.config.delete:
        deleted += _delete_while(log, _beyond_size(log), "retention.bytes")
        deleted += _delete_while(log, _beyond_age(log, now_ms), "retention.ms")
    return deleted


def advance_log_start(log: LogState, offset: int) -> bool:
    """Moves the log start up to `offset`; OFFSET_OUT_OF_RANGE above the high watermark."""
    if offset > log.high_watermark:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"Cannot increment the log start offset to {offset} of partition {log.name} since it is larger than the "
            f"high watermark {log.high_watermark}",
        )
    if offset <= log.log_start_offset:
        return False
    log.log_start_offset = offset
    log.generation += 1
    log.epochs.truncate_from_start(offset)
    log.producers.on_log_start_offset(offset)
    return True


Condition = Callable[["Segment", "Segment | None"], bool]


def _below_log_start(log: LogState) -> Condition:
    return lambda _, following: following is not None and following.base_offset <= log.log_start_offset


def _beyond_size(log: LogState) -> Condition:
    surplus = log.segments.size - log.config.retention_bytes

    def due(segment: Segment, _: Segment | None) -> bool:
        nonlocal surplus
        if surplus - segment.size < 0:
            return False
        surplus -= segment.size
        return True

    return due if log.config.retention_bytes >= 0 and surplus >= 0 else _never


def _beyond_age(log: LogState, now_ms: int) -> Condition:
    retention_ms = log.config.retention_ms
    if retention_ms < 0:
        return _never
    return lambda segment, _: now_ms - segment.largest_timestamp > retention_ms


def _never(_: Segment, __: Segment | None) -> bool:
    return False


def _delete_while(log: LogState, due: Condition, reason: str) -> int:
    """Deletes segments from the first on, as long as they are due and wholly below the high watermark."""
    segments = log.segments.snapshot()
    doomed: list[Segment] = []
    for number, segment in enumerate(segments):
        following = segments[number + 1] if number + 1 < len(segments) else None
        upper = following.base_offset if following is not None else log.log_end_offset
        if following is None and segment.size == 0:
            break
        if log.high_watermark < upper or not due(segment, following):
            break
        doomed.append(segment)
    if not doomed:
        return 0
    with log.guarded("deleting segments"):
        if len(doomed) == len(segments):
            rolling.roll(log, log.log_end_offset)
        following = log.segments.higher(doomed[-1].base_offset)
        assert following is not None
        logger.info(
            "%s: deleting %d segments below offset %d: %s", log.name, len(doomed), following.base_offset, reason
        )
        advance_log_start(log, following.base_offset)
        log.generation += 1
        delete_segments(log, doomed)
    return len(doomed)
