"""One compacted log and the truth about it, for tests of compaction."""

from __future__ import annotations

from collections.abc import Iterator

from pylogd.protocol import batch, control
from pylogd.protocol.batch import Record
from pylogd.runtime.clock import ManualClock
from pylogd.runtime.files import FileSystem
from pylogd.storage.compaction.cleaner import CleanerConfig, plan_job, swap_in
from pylogd.storage.compaction.compaction import compact
from pylogd.storage.compaction.compaction_job import CleanedGroup
from pylogd.storage.compaction.dirtiness import examine
from pylogd.storage.log.log import Log
from pylogd.storage.log.log_environment import LogEnvironment
from pylogd.storage.log_config import LogConfig
from pylogd.storage.recovery.loading import open_log
from pylogd.storage.validation import Origin

RETENTION_MS = 1000


class UnflushedEnvironment(LogEnvironment):
    """Without an fsync at every roll: what is tested here is what the files say, not when they reach the disk."""

    def request_flush(self, log: Log, up_to: int | None = None) -> None:
        """Never."""


class Bench:
    """One compacted log, and the truth about it."""

    def __init__(self, directory: str, files: FileSystem | None = None, **config: object) -> None:
        self.clock = ManualClock(now_ms=1_000_000)
        self.environment = UnflushedEnvironment(FileSystem() if files is None else files, self.clock)
        self.directory = f"{directory}/t-0"
        values: dict[str, object] = {
            "cleanup.policy": "compact",
            "delete.retention.ms": RETENTION_MS,
            "index.interval.bytes": 50,
            "segment.bytes": 600,
            "max.message.bytes": 400,
            **config,
        }
        self.config = LogConfig.from_values(values)
        self.cleaner = CleanerConfig(dedupe_buffer_size=24 * 1000)
        self.log = self.open(clean=False)
        self.written: dict[int, Record] = {}
        self.owner: dict[int, int] = {}
        self.decided: dict[int, bool] = {}
        self.open_txns: dict[int, list[int]] = {}
        self.sequences: dict[int, int] = {}
        self.last_clean: int | None = None

    def open(self, clean: bool, recovery_point: int = 0) -> Log:
        log = open_log(
            self.environment, self.directory, "t", 0, self.config, clean=clean, recovery_point=recovery_point
        )
        log.high_watermark = log.log_end_offset
        return log

    def append(
        self, rows: list[tuple[bytes, bytes | None]], codec: int = 0, producer: int = -1, txn: bool = False
    ) -> None:
        records = [Record(0, self.clock.now_ms() - n, key, value, [("h", b"x")]) for n, (key, value) in enumerate(rows)]
        sequence = self.sequences.get(producer, 0)
        data = batch.build_batch(
            records,
            compression=codec,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=sequence if producer >= 0 else -1,
            transactional=txn,
        )
        if producer >= 0:
            self.sequences[producer] = sequence + len(rows)
        # Noted first: a crash in the middle of the append may leave the batch behind.
        for n, record in enumerate(records):
            offset = self.log.log_end_offset + n
            self.written[offset] = Record(offset, record.timestamp, record.key, record.value, record.headers)
            if txn:
                self.open_txns.setdefault(producer, []).append(offset)
            else:
                self.decided[offset] = True
        self.log.append_as_leader(memoryview(data), 3, now_ms=self.clock.now_ms())
        self.log.high_watermark = self.log.log_end_offset

    def end(self, producer: int, commit: bool) -> None:
        data = control.end_txn_batch(
            commit=commit,
            coordinator_epoch=1,
            producer_id=producer,
            producer_epoch=0,
            timestamp_ms=self.clock.now_ms(),
        )
        self.log.append_as_leader(memoryview(data), 3, origin=Origin.COORDINATOR, now_ms=self.clock.now_ms())
        for offset in self.open_txns.pop(producer, []):
            self.decided[offset] = commit
        self.log.high_watermark = self.log.log_end_offset

    def compact(self) -> list[CleanedGroup]:
        target = examine(self.log, self.last_clean, self.clock.now_ms())
        job = plan_job(target, self.cleaner, self.clock.now_ms())
        groups = []
        for group in compact(self.environment, job, lambda size: None):
            swap_in(self.log, group)
            groups.append(group)
        if groups:
            self.last_clean = groups[-1].end_offset
        return groups

    def batches(self) -> Iterator[tuple[batch.BatchHeader, memoryview]]:
        for segment in self.log.segments:
            data = memoryview(segment.file.pread(segment.size, 0))
            assert len(data) == segment.size
            end = 0
            for pos, header in batch.iter_headers(data):
                assert batch.check_crc(data, pos, pos + header.length)
                assert header.base_offset >= segment.base_offset
                yield header, data[pos : pos + header.length]
                end = pos + header.length
            assert end == segment.size

    def records(self) -> dict[int, Record]:
        found: dict[int, Record] = {}
        for header, view in self.batches():
            if not header.is_control:
                for record in batch.batch_records(view, header):
                    assert record.offset not in found
                    found[record.offset] = record
        return found

    def committed(self, records: dict[int, Record]) -> dict[bytes, Record]:
        """What a read_committed consumer makes of the log."""
        end = self.log.last_stable_offset
        aborted = self.log.aborted_transactions(self.log.log_start_offset, end)
        latest: dict[bytes, Record] = {}
        for header, view in self.batches():
            if header.is_control or header.base_offset >= end:
                continue
            if header.is_transactional and any(
                txn.producer_id == header.producer_id and txn.first_offset <= header.base_offset <= txn.last_offset
                for txn in aborted
            ):
                continue
            for record in batch.batch_records(view, header):
                assert record.key is not None
                latest[record.key] = record
        return latest

    def check(self) -> None:
        found = self.records()
        for offset, record in found.items():
            assert record == self.written[offset]
        wanted: dict[bytes, Record] = {}
        for offset, record in sorted(self.written.items()):
            if self.decided.get(offset) and offset < self.log.last_stable_offset:
                assert record.key is not None
                wanted[record.key] = record
        seen = self.committed(found)
        # Tombstones may be gone; everything with a value is there and is the latest.
        assert {k: r for k, r in seen.items() if r.value is not None} == {
            k: r for k, r in wanted.items() if r.value is not None
        }
        if self.last_clean is not None:
            clean = [record.key for offset, record in found.items() if offset < self.last_clean]
            assert len(clean) == len(set(clean)), "a key twice in the clean part"
            assert not any(self.decided.get(o) is False for o in found if o < self.last_clean)

    def reopen(self, clean: bool) -> None:
        end, unstable = self.log.log_end_offset, self.log.first_unstable_offset
        before = self.producer_facts()
        if clean:
            self.log.flush()
            self.log.close()
        else:
            self.log.close_handles()
        self.log = self.open(clean)
        assert self.log.log_end_offset == end
        assert self.log.first_unstable_offset == unstable
        assert self.producer_facts() == before

    def producer_facts(self) -> dict[int, tuple[int, int, int | None]]:
        return {
            producer: (entry.producer_epoch, entry.last_sequence, entry.txn_first_offset)
            for producer, entry in self.log.producers.producers.items()
        }
