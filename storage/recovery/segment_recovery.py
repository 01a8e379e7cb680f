"""What happens to segments that may not have reached the disk whole: every batch is read and its checksum verified.

The first bytes that are not a whole, valid batch with offsets above its predecessor's end the log: the file is cut
there and later segments are dropped. So does a batch of an earlier leader epoch than its predecessor's: it was cut off
once, and the crash brought it back behind what was written in its place. On the way the indexes, the leader epochs and
the producers' state are rebuilt from the batches. What was recovered is synced at the end, so that the next crash does
not start from the same point, unless the caller leaves that to the next flush.
"""

from __future__ import annotations

import errno
import logging
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from pylogd.protocol.batch import CONTROL_FLAG, check_crc
from pylogd.protocol.errors import KafkaError
from pylogd.runtime.files import File
from pylogd.storage.log.leader_epochs import UNDEFINED_EPOCH, EpochCache
from pylogd.storage.log_config import LogConfig
from pylogd.storage.producers.producer_replay import replay, replay_log
from pylogd.storage.producers.producer_state import ProducerStates, read_marker
from pylogd.storage.segments.index import NO_TIMESTAMP
from pylogd.storage.segments.scan import CorruptLog, scan_batches
from pylogd.storage.segments.segment import DELETED_SUFFIX, RELATIVE_OFFSET_MAX, Segment
from pylogd.storage.segments.segment_list import Segments

if TYPE_CHECKING:
    from pylogd.storage.environment import StorageEnvironment

logger = logging.getLogger(__name__)


class Recovery:
    """One log being loaded; runs before anybody else has it."""

    def __init__(
        self,
        environment: StorageEnvironment,
        name: str,
        segments: Segments,
        epochs: EpochCache,
        producers: ProducerStates,
        config: LogConfig,
        log_start_offset: int,
    ) -> None:
        self._environment = environment
        self._name = name
        self._segments = segments
        self._epochs = epochs
        self._producers = producers
        self._config = config
        self._log_start_offset = log_start_offset
        self._replayed_to: int | None = None
        #: Closed segments whose indexes are new on disk.
        self.rebuilt: list[Segment] = []

    def recover_from(self, recovery_point: int, progress: Callable[[int], None] | None, sync: bool) -> None:
        """Scans every segment from the recovery point on. A recovery point at the very end of a segment includes that
        segment: its records were flushed while it was active, and the crash may have come before its indexes were."""
        unflushed = self._segments.between(recovery_point - 1, 2**63 - 1)
        if not unflushed:
            return
        producers = self._producers
        now_ms = self._environment.clock.now_ms()
        start = unflushed[0].base_offset
        replay_log(producers, self._segments, min(self._log_start_offset, start), start, now_ms)
        for number, segment in enumerate(unflushed):
            if progress is not None:
                progress(len(unflushed) - number)
            if number and segment.base_offset < producers.map_end_offset:
                logger.warning("%s: segment %d overlaps the one before it", self._name, segment.base_offset)
                self.drop(unflushed[number:])
                break
            producers.map_end_offset = max(segment.base_offset, self._log_start_offset)
            producers.take_snapshot(durable=False)
            cut = self._recover(segment, producers)
            if cut:
                logger.warning(
                    "%s: segment %d had %d invalid bytes at its end, cut at %d",
                    self._name,
                    segment.base_offset,
                    cut,
                    segment.size,
                )
                self.drop(unflushed[number + 1 :])
            if segment is not self._segments.last:
                segment.become_inactive()
                self.rebuilt.append(segment)
            if sync:
                segment.sync(indexes=segment is not self._segments.last)
            segment.file.close()
            if cut:
                break
        self._epochs.flush(sync)
        if sync:
            self._environment.files.sync_dir(unflushed[0].directory)
        self._replayed_to = self._producers.map_end_offset
        if progress is not None:
            progress(0)

    def rebuild_indexes(self, segments: list[Segment]) -> None:
        """After a clean stop: the log is trusted, but these have no usable index, as when somebody removed it."""
        for segment in segments:
            logger.warning(
                "%s: the indexes of segment %d are missing or unusable and are rebuilt", self._name, segment.base_offset
            )
            scratch = ProducerStates(self._environment.files, segment.directory, self._producers.snapshots.offsets)
            replay_log(
                scratch, self._segments, self._log_start_offset, segment.base_offset, self._environment.clock.now_ms()
            )
            cut = self._recover(segment, scratch)
            if cut:
                self.drop(self._segments.between(segment.base_offset, 2**63 - 1)[1:])
            if segment is not self._segments.last:
                segment.become_inactive()
            segment.file.close()
            if cut:
                break

    def bring_producers_to(self, end_offset: int, log_start_offset: int, clean: bool) -> None:
        """The producers' state at the log end, which recovery may have come by already."""
        producers = self._producers
        producers.snapshots.delete_strays(self._segments.base_offsets)
        if clean and producers.snapshots.latest is None:
            producers.map_end_offset = end_offset  # an orderly stop leaves a snapshot when there is anything to tell
        elif self._replayed_to != end_offset:
            replay_log(producers, self._segments, log_start_offset, end_offset, self._environment.clock.now_ms())

    def ends_whole(self, segment: Segment) -> bool:
        """Do the batches behind the last index entry parse? All that is looked at after a clean stop."""
        try:
            segment.next_offset()
        except CorruptLog:
            return False
        return True

    def _recover(self, segment: Segment, producers: ProducerStates) -> int:
        """Scans one segment and installs what the scan found; returns how many bytes were cut."""
        segment.txn_index.reset()
        entries: list[tuple[int, int, int, int]] = []
        max_timestamp, max_timestamp_offset = NO_TIMESTAMP, segment.base_offset
        interval = self._config.index_interval_bytes
        valid, last_entry = 0, 0
        next_offset = segment.base_offset
        epoch, same_until = UNDEFINED_EPOCH, 0
        try:
            for position, header, view in scan_batches(segment.file, 0, segment.size):
                last_offset = header.last_offset
                if not check_crc(view):
                    raise CorruptLog(position, f"the checksum of {header!r} does not hold")
                if header.base_offset < next_offset or last_offset < header.base_offset:
                    raise CorruptLog(position, f"{header!r} does not follow offset {next_offset - 1}")
                if last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
                    raise CorruptLog(position, f"{header!r} is out of the range of segment {segment.base_offset}")
                found = header.partition_leader_epoch
                if found >= 0 and (found != epoch or header.base_offset >= same_until):
                    if found < epoch:
                        raise CorruptLog(position, f"{header!r} follows a batch of epoch {epoch}")
                    epoch = found
                    same_until = self._epochs.agree(epoch, header.base_offset)
                if header.producer_id >= 0:
                    marker = read_marker(view, header) if header.attributes & CONTROL_FLAG else None
                    replay(producers, header, marker, segment.txn_index)
                if header.max_timestamp > max_timestamp:
                    max_timestamp, max_timestamp_offset = header.max_timestamp, last_offset
                if position - last_entry > interval:
                    entries.append((last_offset, position, max_timestamp, max_timestamp_offset))
                    last_entry = position
                valid = position + header.length
                next_offset = last_offset + 1
        except CorruptLog as error:
            if _is_old_message(segment.file, error.position, segment.size):
                path = segment.paths()[0]
                reason = "holds messages of a format before 2, which this version cannot read; nothing was cut"
                raise OSError(errno.EPROTONOSUPPORT, reason, path) from None
            logger.warning("%s: segment %d %s", self._name, segment.base_offset, error)
        except KafkaError as error:
            logger.warning("%s: segment %d at byte %d: %s", self._name, segment.base_offset, valid, error)
        cut = segment.size - valid
        segment.rebuild(valid, entries, (max_timestamp, max_timestamp_offset))
        producers.map_end_offset = next_offset
        return cut

    def drop(self, segments: list[Segment]) -> None:
        """Takes segments out for good, the last first; nobody reads them."""
        files = self._environment.files
        for segment in reversed(segments):
            logger.warning("%s: segment %d is dropped", self._name, segment.base_offset)
            self._segments.remove(segment)
            segment.change_suffix(DELETED_SUFFIX)
            segment.drop()
            paths = segment.paths()
            snapshot = self._producers.snapshots.mark_deleted(segment.base_offset)
            for path in [*paths, *([snapshot] if snapshot else [])]:
                files.unlink(path)


def _is_old_message(file: File, position: int, end: int) -> bool:
    """Whether an intact message of format 0 or 1 stands here: offset int64, size int32, CRC-32 of all that follows it,
    magic. Garbage at the end of a torn log passes the CRC once in four thousand million times."""
    head = file.pread(17, position)
    if len(head) < 17 or head[16] > 1:
        return False
    size = int.from_bytes(head[8:12], "big", signed=True)
    if not 14 <= size <= end - position - 12:
        return False
    body = file.pread(size, position + 12)
    return zlib.crc32(body[4:]) == int.from_bytes(body[:4], "big")
