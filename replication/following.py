"""The follower's side of a partition: write what the leader sent, take over its offsets, cut what it does not have."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from pylogd.protocol.batch import parse_header

if TYPE_CHECKING:
    from pylogd.replication.partition import Partition
    from pylogd.storage.log.log import Log

_base_offset = Struct(">q").unpack_from


def append_from_leader(partition: Partition, records: memoryview, leader_epoch: int) -> bool:
    """Write what the leader sent; True when that was something. A log whose start lies inside the leader's first batch
    begins with that batch."""
    log = partition.log
    if log.log_start_offset == log.log_end_offset and _base_offset(records)[0] < log.log_end_offset:
        _start_inside_batch(log, records)
    return log.append_as_follower(records, leader_epoch) is not None


def _start_inside_batch(log: Log, records: memoryview) -> None:
    """Records at the leader's log start were deleted from the middle of a batch, and batches travel whole. The log
    start follows with the leader's."""
    header = parse_header(records)
    if header.last_offset >= log.log_end_offset:
        log.truncate_fully_and_start_at(header.base_offset)


def take_over_offsets(partition: Partition, high_watermark: int, log_start_offset: int) -> None:
    """Take over the leader's high watermark, as far as this log goes, and its log start."""
    log = partition.log
    mark = high_watermark if high_watermark < log.log_end_offset else log.log_end_offset
    if mark > log.high_watermark:
        log.high_watermark = mark
        if partition.waiters.fetches and not partition.wake_scheduled:
            partition.wake_fetches()
    if log_start_offset > log.log_start_offset:
        log.delete_records_before(min(log_start_offset, log.high_watermark))


def truncate_to(partition: Partition, offset: int) -> None:
    """The leader does not have what lies at and above `offset`."""
    partition.log.truncate_to(offset)
    partition.wake_fetches()


def restart_at(partition: Partition, offset: int) -> None:
    """Nothing here is of use any more: the leader's log starts at `offset`."""
    partition.log.truncate_fully_and_start_at(offset)
    partition.wake_fetches()
