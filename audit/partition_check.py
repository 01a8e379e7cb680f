"""The check of one partition directory: every batch of every segment is read once, in chunks, in the order of offsets.

A broker may be at work there. It appends to the last segment, so a batch that is not whole there is looked at again;
it removes, swaps and truncates segments, so what was found while the directory changed shape is forgotten and the
check starts again.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_right

from pylogd.audit.digests import Digester
from pylogd.audit.indexes import OffsetIndexCheck, TimeIndexCheck, check_aborted
from pylogd.audit.model import Kind, ReplicaReport, Task
from pylogd.audit.survey import segment_bases
from pylogd.protocol.batch import ATTRIBUTES_POS, HEADER_SIZE, BatchHeader, batch_records, parse_header
from pylogd.protocol.control import ControlType, control_type
from pylogd.protocol.crc import crc32c
from pylogd.protocol.errors import KafkaError
from pylogd.runtime.files import File, FileSystem
from pylogd.storage import checkpoint_file
from pylogd.storage.log.leader_epochs import EpochCache
from pylogd.storage.segments.scan import CHUNK_BYTES, CorruptLog, scan_batches
from pylogd.storage.segments.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    RELATIVE_OFFSET_MAX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
)

ATTEMPTS = 5
_TAIL_LOOKS = 5
_TAIL_PAUSE_S = 0.1
_NO_EPOCH = -1


def check(task: Task) -> ReplicaReport:
    """Everything that can be said about a replica from its own directory, and the digests of its blocks."""
    report = ReplicaReport(task.replica)
    for _ in range(ATTEMPTS):
        before = _shape(task.replica.path)
        report = _PartitionCheck(task).run()
        if not report.findings or task.replica.clean or _shape(task.replica.path) == before:
            break
    return report


def _shape(path: str) -> list[tuple[str, int, int]]:
    """Names, files and sizes of the segments. The last one may grow; that it shrinks shows in its successors."""
    try:
        names = list(segment_bases(path).values())
        shape = []
        for name in names:
            status = os.stat(f"{path}/{name}")
            shape.append((name, status.st_ino, status.st_size if name != names[-1] else 0))
        return shape
    except FileNotFoundError:
        return []


class _PartitionCheck:
    def __init__(self, task: Task) -> None:
        self.replica = task.replica
        self.report = ReplicaReport(task.replica)
        self._files = FileSystem()
        self._gaps_to = task.gaps_to
        self._compacted = task.compacted
        self._swapped_end = 0
        self._digester = Digester(task.cuts)
        self._expected = -1
        #: The bytes that led here could not be read, so what is missing was reported already.
        self._lost = False
        self._epoch = _NO_EPOCH
        #: Up to here the table has no other epoch.
        self._epoch_until = 0
        self._epoch_starts: list[int] = []
        self._epochs: list[int] = []
        self._epoch_complaints: set[tuple[int, int]] = set()
        #: First offsets of open transactions by producer id; None when it may lie in what could not be read.
        self._open: dict[int, int | None] = {}
        self._unseen = False
        #: Producers that ended a transaction since.
        self._seen_ending: set[int] = set()
        # What lies behind the recovery point is checked and repaired at the next start.
        known = task.replica.recovery_point
        self._recovery_point = known if known is not None else (1 << 63 if task.replica.clean else 0)

    def run(self) -> ReplicaReport:
        report, path = self.report, self.replica.path
        self._load_epochs()
        try:
            bases = segment_bases(path)
        except OSError as error:
            # A broker that runs may have deleted the partition.
            if self.replica.clean or os.path.isdir(path):
                report.find(Kind.UNREADABLE, str(error))
            return report
        order = sorted(bases)
        if self._compacted and not self.replica.clean:
            self._gaps_to = max(self._gaps_to, max(order, default=0))
        for number, base in enumerate(order):
            # A segment that compaction was about to swap in replaces the originals up to its end.
            if base < self._swapped_end:
                continue
            try:
                self._segment(base, bases[base], active=number == len(order) - 1)
            except OSError as error:
                report.find(Kind.UNREADABLE, str(error), bases[base])
                self._lost = True
        report.start = order[0] if order else 0
        report.end = max(self._expected, 0)
        self._digester.finish()
        report.digests = self._digester.digests
        self._check_end()
        return report

    def _load_epochs(self) -> None:
        cache = EpochCache(self._files, f"{self.replica.path}/{checkpoint_file.LEADER_EPOCHS}")
        try:
            cache.load()
        except (checkpoint_file.CheckpointError, ValueError, OSError) as error:
            self.report.find(Kind.EPOCHS, str(error), checkpoint_file.LEADER_EPOCHS)
            return
        for epoch, start in cache.entries():
            self._epochs.append(epoch)
            self._epoch_starts.append(start)

    def _check_end(self) -> None:
        """Is everything there that this disk is known to have had?"""
        report, replica = self.report, self.replica
        if self._lost:
            return
        for known, what in ((replica.high_watermark, "high watermark"), (replica.recovery_point, "recovery point")):
            if known is not None and known > report.end:
                report.find(Kind.SHORT, f"the log ends at {report.end}, below its {what} {known}", offset=report.end)
                return

    # -- segments

    def _segment(self, base: int, name: str, active: bool) -> None:
        report, replica = self.report, self.replica
        if self._expected < 0:
            self._expected = base
            # What retention removed may have begun a transaction.
            self._unseen = base > 0
        if base != self._expected:
            self._jump(base, name, Kind.MISSING_SEGMENT)
        stem = f"{base:020d}"
        suffix = name.removeprefix(stem + LOG_SUFFIX)
        offsets_data = self._read(stem + INDEX_SUFFIX + suffix)
        times_data = self._read(stem + TIME_INDEX_SUFFIX + suffix)
        offsets = OffsetIndexCheck(offsets_data or b"", base, active)
        times = TimeIndexCheck(times_data or b"", base, active)
        markers: list[tuple[int, int | None, int]] = []
        file = self._files.file(f"{replica.path}/{name}", readonly=True)
        report.segments += 1
        try:
            size = file.size()
            position = 0
            while True:
                try:
                    self._scan(file, position, size, base, name, offsets, times, markers)
                    break
                except CorruptLog as bad:
                    position = bad.position
                    size, wait = self._look_again(file, bad.position, size, active)
                    if wait:
                        continue
                    resume = self._unreadable(file, bad, size, name, offsets, active)
                    if resume is None:
                        break
                    times.give_up()
                    offsets.skip_to(resume)
                    position = resume
        finally:
            file.close()
        report.size += size
        if not self._lost:
            offsets.finish()
            times.finish()
        if suffix:
            self._swapped_end = max(self._swapped_end, self._expected)
        for kind, problem, file_suffix in (
            (Kind.INDEX, offsets.problem, INDEX_SUFFIX),
            (Kind.TIME_INDEX, times.problem, TIME_INDEX_SUFFIX),
        ):
            if problem:
                report.find(kind, problem, stem + file_suffix + suffix)
        if not active and size and self._expected <= self._recovery_point:
            for data, file_suffix in ((offsets_data, INDEX_SUFFIX), (times_data, TIME_INDEX_SUFFIX)):
                if data is None:
                    kind = Kind.INDEX if file_suffix == INDEX_SUFFIX else Kind.TIME_INDEX
                    report.find(kind, "the file is missing", stem + file_suffix + suffix)
        aborted = self._read(stem + TXN_INDEX_SUFFIX + suffix)
        exact = not self._compacted and not self._lost
        if aborted is None and active and self._expected > self._recovery_point:
            return
        if problem := check_aborted(aborted or b"", markers, base, self._expected, exact=exact):
            report.find(Kind.TXN_INDEX, problem, stem + TXN_INDEX_SUFFIX + suffix)

    def _read(self, name: str) -> bytes | None:
        """An index is bounded by `segment.index.bytes`. None when there is no such file."""
        try:
            return self._files.read_bytes(f"{self.replica.path}/{name}")
        except FileNotFoundError:
            return None

    def _scan(
        self,
        file: File,
        position: int,
        size: int,
        base: int,
        name: str,
        offsets: OffsetIndexCheck,
        times: TimeIndexCheck,
        markers: list[tuple[int, int | None, int]],
    ) -> None:
        report, digester = self.report, self._digester
        for at, header, batch in scan_batches(file, position, size):
            first = header.base_offset
            last = first + header.last_offset_delta
            if crc32c(batch[ATTRIBUTES_POS:]) != header.crc:
                report.find(Kind.CORRUPT, f"the checksum of the batch at byte {at} does not hold", name, first)
                self._damage(min(first, self._expected), max(last + 1, self._expected))
                # The fields behind the checksum may be the damaged ones.
                if first == self._expected and 0 <= header.last_offset_delta <= size:
                    self._expected = last + 1
                else:
                    self._lost = True
                times.give_up()
                offsets.skip_to(at + header.length)
                continue
            if first != self._expected:
                self._jump(first, name, Kind.GAP)
            if first < base or last < first or last - base > RELATIVE_OFFSET_MAX:
                report.find(Kind.OFFSETS, f"a batch [{first}, {last}] cannot be in this segment", name, first)
            self._check_count(header, name)
            if header.partition_leader_epoch != self._epoch or first >= self._epoch_until:
                self._check_epoch(header.partition_leader_epoch, first, name)
            if header.is_transactional:
                self._transaction(header, batch, markers)
            offsets.batch(at, last)
            times.batch(last, header.max_timestamp, header.record_count == 0)
            if first >= digester.until:
                digester.next_block(first)
            digester.add(batch)
            self._expected = last + 1
            self._lost = False
            report.batches += 1

    def _jump(self, offset: int, name: str, kind: str) -> None:
        """The offsets do not go on where they ended."""
        expected, report = self._expected, self.report
        if offset < expected:
            report.find(Kind.OFFSETS, f"offset {offset} follows {expected - 1}", name, offset)
        elif offset > self._gaps_to and not (self._compacted and kind == Kind.GAP):
            if not self._lost:
                what = "a segment is missing" if kind == Kind.MISSING_SEGMENT else "records are missing"
                report.find(kind, f"{what}: offsets {expected} to {offset - 1}", name, expected)
            self._damage(expected, offset)
        self._expected = offset

    def _damage(self, start: int, end: int) -> None:
        self.report.damage.append((start, end))
        self._unseen = True
        self._open.clear()
        self._seen_ending.clear()

    def _check_count(self, header: BatchHeader, name: str) -> None:
        count, spanned = header.record_count, header.last_offset_delta + 1
        if count != spanned and (count < 0 or count > spanned or not self._compacted):
            text = f"a batch of {spanned} offsets has {count} records"
            self.report.find(Kind.OFFSETS, text, name, header.base_offset)

    def _check_epoch(self, epoch: int, offset: int, name: str) -> None:
        slot = bisect_right(self._epoch_starts, offset)
        self._epoch_until = self._epoch_starts[slot] if slot < len(self._epoch_starts) else 1 << 63
        if slot and offset < self._recovery_point and epoch != self._epochs[slot - 1]:
            pair = (epoch, self._epochs[slot - 1])
            if pair not in self._epoch_complaints:
                self._epoch_complaints.add(pair)
                text = f"a batch of leader epoch {epoch} where {checkpoint_file.LEADER_EPOCHS} has {pair[1]}"
                self.report.find(Kind.EPOCHS, text, name, offset)
        elif epoch < self._epoch:
            self.report.find(Kind.EPOCHS, f"leader epoch {epoch} follows {self._epoch}", name, offset)
        else:
            self._epoch = epoch

    def _transaction(self, header: BatchHeader, batch: memoryview, markers: list[tuple[int, int | None, int]]) -> None:
        producer_id = header.producer_id
        if not header.is_control:
            certain = not self._unseen or producer_id in self._seen_ending
            self._open.setdefault(producer_id, header.base_offset if certain else None)
            return
        first = self._open.pop(producer_id, None)
        self._seen_ending.add(producer_id)
        try:
            kinds = [control_type(record.key) for record in batch_records(batch, header)]
        except KafkaError as error:
            self.report.find(Kind.CORRUPT, f"a control batch: {error}", offset=header.base_offset)
            return
        if kinds and kinds[0] is ControlType.ABORT:
            markers.append((producer_id, first, header.last_offset))

    # -- bytes that are no batch

    def _look_again(self, file: File, position: int, size: int, active: bool) -> tuple[int, bool]:
        """The size of the file now, and whether a broker may have completed the batch at `position` meanwhile."""
        if not active or self.replica.clean:
            return size, False
        for _ in range(_TAIL_LOOKS):
            now = file.size()
            if now != size:
                return now, now > position
            time.sleep(_TAIL_PAUSE_S)
        return size, False

    def _unreadable(
        self, file: File, bad: CorruptLog, size: int, name: str, offsets: OffsetIndexCheck, active: bool
    ) -> int | None:
        """Reports it; where the next readable batch may be."""
        position = bad.position
        if active and _all_zeros(file, position, size):
            # log.preallocate, or pages that a crash left empty: in both cases the log ends before them.
            return None
        resume = offsets.position_after(position)
        report = self.report
        self._lost = True
        if resume is not None and resume < size:
            report.find(Kind.CORRUPT, f"{bad}; reading goes on at byte {resume}", name, self._expected)
            return resume
        if not _ends_inside_a_batch(file, position, size):
            report.find(Kind.CORRUPT, f"unreadable to the end of the file: {bad}", name, self._expected)
            return None
        text = f"the last {size - position} bytes are no whole batch"
        mark = self.replica.high_watermark
        if active and mark is not None:
            lost = mark > self._expected
            text += f", records up to the high watermark {mark} are lost" if lost else ", nothing committed is lost"
        report.find(Kind.TORN, text, name, self._expected)
        return None


def _ends_inside_a_batch(file: File, position: int, size: int) -> bool:
    if size - position < HEADER_SIZE:
        return True
    try:
        return parse_header(file.pread(HEADER_SIZE, position)).length > size - position
    except KafkaError:
        return False


def _all_zeros(file: File, position: int, end: int) -> bool:
    while position < end:
        chunk = file.pread(min(CHUNK_BYTES, end - position), position)
        if not chunk:
            return True
        if chunk.strip(b"\0"):
            return False
        position += len(chunk)
    return True
