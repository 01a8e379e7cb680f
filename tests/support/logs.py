"""Building blocks for tests of storage: batches, logs on real or simulated disks, and a plain reading of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from pylogd.protocol.batch import BatchHeader, Record, build_batch, check_crc, iter_headers
from pylogd.protocol.control import end_txn_batch
from pylogd.runtime.clock import ManualClock
from pylogd.runtime.files import FileSystem
from pylogd.storage.log.log import AppendInfo, Log
from pylogd.storage.log.log_environment import LogEnvironment
from pylogd.storage.log_config import LogConfig
from pylogd.storage.recovery.loading import open_log
from pylogd.storage.segments.scan import scan_batches
from pylogd.storage.validation import Origin

NOW_MS = 1_700_000_000_000


def batch(
    count: int = 1,
    *,
    size: int = 20,
    timestamp: int = NOW_MS,
    step_ms: int = 1,
    key: bytes | None = b"k",
    **options: Any,
) -> memoryview:
    """A produced batch: writable, base offset 0."""
    records = [Record(n, timestamp + n * step_ms, key, bytes([n % 256]) * size, ()) for n in range(count)]
    return memoryview(build_batch(records, **options))


def marker(producer_id: int, producer_epoch: int, commit: bool, timestamp: int = NOW_MS) -> memoryview:
    return memoryview(
        end_txn_batch(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            commit=commit,
            coordinator_epoch=0,
            timestamp_ms=timestamp,
        )
    )


def environment(files: FileSystem | None = None, clock: ManualClock | None = None) -> LogEnvironment:
    return LogEnvironment(files or FileSystem(), clock or ManualClock(NOW_MS), random.Random(1))


def new_log(directory: object, surroundings: LogEnvironment | None = None, **config: Any) -> Log:
    """Opens or creates `t-0` below `directory`."""
    return open_log(surroundings or environment(), f"{directory}/t-0", "t", 0, LogConfig(**config))


def append(log: Log, records: memoryview, epoch: int = 0, origin: Origin = Origin.CLIENT) -> AppendInfo:
    return log.append_as_leader(records, epoch, now_ms=log.environment.clock.now_ms(), origin=origin)


def stored(log: Log) -> list[tuple[BatchHeader, bytes]]:
    """Every batch in the files of the log, in order; fails on a bad checksum."""
    found = []
    for segment in log.segments:
        for _, header, view in scan_batches(segment.file, 0, segment.size):
            assert check_crc(view), header
            found.append((header, bytes(view)))
    return found


def read_all(log: Log, start: int | None = None, max_bytes: int = 1 << 20) -> list[BatchHeader]:
    """What a consumer gets by fetching to the end of the log."""
    offset = log.log_start_offset if start is None else start
    headers: list[BatchHeader] = []
    while offset < log.log_end_offset:
        found = log.read(offset, max_bytes, log.log_end_offset)
        if found.range is None:
            break
        whole = [header for _, header in iter_headers(found.range.read()) if header.last_offset >= offset]
        assert whole, f"a read at {offset} gave no whole batch"
        headers += whole
        offset = whole[-1].next_offset
    return headers


def check_indexes(log: Log) -> None:
    """Every index entry names a batch that is there, and is in order."""
    for segment in log.segments:
        batches = {position: header for position, header, _ in scan_batches(segment.file, 0, segment.size)}
        last = -1
        for offset, position in segment.offset_index.items():
            assert position in batches, (segment, offset, position)
            assert batches[position].last_offset == offset
            assert offset > last
            last = offset
        by_last_offset = {header.last_offset: header for header in batches.values()}
        last_timestamp = -1
        for timestamp, offset in segment.time_index.items():
            assert by_last_offset[offset].max_timestamp == timestamp
            assert timestamp > last_timestamp
            earlier = [header.max_timestamp for header in batches.values() if header.last_offset < offset]
            assert timestamp >= max(earlier, default=-1)
            last_timestamp = timestamp


def each(times: int, make: Callable[[int], memoryview]) -> list[memoryview]:
    return [make(n) for n in range(times)]
