"""The metadata log on disk: `__cluster_metadata-0`, an ordinary partition log with snapshots beside its segments.

Retention works by snapshot, not by segment age: once a newer snapshot exists, an older one goes with the log before the
newer, when both together are larger than metadata.max.retention.bytes or the older is past metadata.max.retention.ms.
The newest snapshot and the log after it always stay.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from random import Random

from pylogd.metadata.snapshot import DELETED_SUFFIX, PARTIAL_SUFFIX, SUFFIX, SnapshotId
from pylogd.metadata.topic_names import CLUSTER_METADATA_TOPIC
from pylogd.protocol.uuids import METADATA_TOPIC_ID
from pylogd.runtime.clock import Clock
from pylogd.runtime.files import FileSystem
from pylogd.runtime.workers import Workers
from pylogd.storage.log.flush_plan import FlushableLog
from pylogd.storage.log.log import FlushPlan
from pylogd.storage.log.log_environment import LogEnvironment
from pylogd.storage.log_config import LogConfig
from pylogd.storage.recovery.loading import open_log
from pylogd.storage.validation import Origin

logger = logging.getLogger(__name__)

DIRECTORY = f"{CLUSTER_METADATA_TOPIC}-0"
BATCH_BYTES_MAX = 8 << 20
_READ_BYTES = 1 << 20


class MetadataLogConfig:
    """The metadata.* settings that concern the log; Kafka's defaults."""

    __slots__ = (
        "max_retention_bytes",
        "max_retention_ms",
        "segment_bytes",
        "segment_ms",
        "snapshot_interval_bytes",
        "snapshot_interval_ms",
    )

    def __init__(
        self,
        segment_bytes: int = 1 << 30,
        segment_ms: int = 7 * 24 * 3600 * 1000,
        max_retention_bytes: int = 100 << 20,
        max_retention_ms: int = 7 * 24 * 3600 * 1000,
        snapshot_interval_bytes: int = 20 << 20,
        snapshot_interval_ms: int = 3600 * 1000,
    ) -> None:
        self.segment_bytes = segment_bytes
        self.segment_ms = segment_ms
        self.max_retention_bytes = max_retention_bytes
        self.max_retention_ms = max_retention_ms
        self.snapshot_interval_bytes = snapshot_interval_bytes
        self.snapshot_interval_ms = snapshot_interval_ms


class MetadataEnvironment(LogEnvironment):
    """Deletions run on workers after their delay; a failed disk under the metadata log stops the controller, a full one
    does not."""

    def __init__(
        self,
        files: FileSystem,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        workers: Workers,
        on_failure: Callable[[OSError], None],
    ) -> None:
        super().__init__(files, clock, Random(0))
        self._loop = loop
        self._workers = workers
        self._on_failure = on_failure
        self._full = False

    def later(self, delay_ms: int, job: Callable[[], None]) -> None:
        self._loop.call_later(delay_ms / 1000, self._workers.offload, job)

    def failed(self, log: FlushableLog, action: str, error: OSError) -> None:
        super().failed(log, action, error)
        logger.error("the metadata log in %s failed on %s: %s", log.directory, action, error)
        self._on_failure(error)

    def disk_full(self, log: FlushableLog, error: OSError) -> None:
        if not self._full:
            self._full = True
            logger.error(
                "the disk of the metadata log in %s is full: the cluster cannot be changed until it has room (%s)",
                log.directory,
                error,
            )

    def disk_has_room(self, log: FlushableLog) -> None:
        if self._full:
            self._full = False
            logger.info("the metadata log in %s has room again", log.directory)


class MetadataLog:
    """Batches in, batches out; knows which snapshots exist."""

    def __init__(self, environment: MetadataEnvironment, root: str, config: MetadataLogConfig) -> None:
        self._environment = environment
        self.files = environment.files
        self.directory = f"{root}/{DIRECTORY}"
        self.config = config
        self.snapshots = self._find_snapshots()
        log_config = LogConfig(
            segment_bytes=config.segment_bytes,
            segment_ms=config.segment_ms,
            max_message_bytes=BATCH_BYTES_MAX,
            retention_bytes=-1,
            retention_ms=-1,
        )
        self.log = open_log(
            environment, self.directory, CLUSTER_METADATA_TOPIC, 0, log_config, topic_id=METADATA_TOPIC_ID
        )
        # The votes are kept in this directory; if it is new, nothing in it is durable before its name is.
        self.files.sync_dir(root)
        latest = self.latest_snapshot
        if latest is not None and latest.offset > self.log.log_end_offset:
            # A snapshot was fetched and the log behind it not yet cut: the snapshot wins.
            self.log.truncate_fully_and_start_at(latest.offset)

    def _find_snapshots(self) -> list[SnapshotId]:
        if not self.files.is_dir(self.directory):
            return []
        found = []
        for name in self.files.listdir(self.directory):
            if name.endswith((PARTIAL_SUFFIX, DELETED_SUFFIX)):
                self.files.unlink(f"{self.directory}/{name}")
            else:
                snapshot_id = SnapshotId.parse(name)
                if snapshot_id is not None:
                    found.append(snapshot_id)
        return sorted(found)

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        return self.snapshots[-1] if self.snapshots else None

    @property
    def end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def last_epoch(self) -> int:
        """Epoch of the last record, or of the snapshot that stands for all of them."""
        snapshot = self.latest_snapshot
        return max(self.log.epochs.latest, -1 if snapshot is None else snapshot.epoch, 0)

    def append(self, batch: bytearray, epoch: int, now_ms: int) -> None:
        """Writes a batch whose base offset is the log end. Not durable yet."""
        self.log.append_as_leader(memoryview(batch), epoch, now_ms=now_ms, origin=Origin.RAFT_LEADER)

    def flush_plan(self) -> FlushPlan:
        return self.log.flush_plan()

    def flushed(self, plan: FlushPlan) -> None:
        self.log.mark_flushed(plan)

    def read(self, start: int, end: int) -> Iterator[bytes]:
        """Whole batches from the one that holds `start` up to `end`, about a megabyte at a time."""
        while start < end:
            data = self.read_from(start, _READ_BYTES, end)
            if not data:
                return
            yield data
            start = _whole_batches(data)[1]

    def read_from(self, start: int, max_bytes: int, end: int) -> bytes:
        """Whole batches from the one that holds `start`, below `end`, at least one if there is any."""
        if start >= end:
            return b""
        found = self.log.read(start, max_bytes, end)
        if found.range is None:
            return b""
        data = found.range.read()
        whole = _whole_batches(data)[0]
        if not whole:
            raise ValueError(f"no whole batch at offset {start} of the metadata log")
        return data[:whole]

    # -- snapshots

    def snapshot_path(self, snapshot_id: SnapshotId) -> str:
        return f"{self.directory}/{snapshot_id.filename}"

    def read_snapshot(self, snapshot_id: SnapshotId) -> bytes:
        return self.files.read_bytes(self.snapshot_path(snapshot_id))

    def snapshot_written(self, snapshot_id: SnapshotId) -> None:
        """A snapshot is whole. One that was overtaken by a fetched snapshot while it was written is not kept."""
        if snapshot_id.offset < self.log.log_start_offset:
            self.files.unlink(self.snapshot_path(snapshot_id))
            return
        if snapshot_id not in self.snapshots:
            self.snapshots.append(snapshot_id)
            self.snapshots.sort()

    def install(self, snapshot_id: SnapshotId) -> None:
        """A snapshot that was fetched takes the place of the log and of all older snapshots."""
        self.log.truncate_fully_and_start_at(snapshot_id.offset)
        older, self.snapshots = self.snapshots, [snapshot_id]
        for former in older:
            if former != snapshot_id:
                self._drop(former)

    def _drop(self, snapshot_id: SnapshotId) -> None:
        """Out of the way now, off the disk later: somebody may still be reading it."""
        path = self.snapshot_path(snapshot_id)
        doomed = path[: -len(SUFFIX)] + DELETED_SUFFIX
        self.files.rename(path, doomed)
        self._environment.later(self.log.config.file_delete_delay_ms, partial(self._unlink, doomed))

    def clean(self, now_ms: int) -> None:
        """Drops snapshots, and the log they make superfluous, that retention no longer wants."""
        while len(self.snapshots) > 1 and self._expired(now_ms):
            oldest, following = self.snapshots[0], self.snapshots[1]
            if following.offset > self.log.log_start_offset:
                self.log.delete_records_before(following.offset)
            self.log.delete_old_segments(now_ms)
            self.snapshots.pop(0)
            self._drop(oldest)
            logger.info("metadata snapshot %s is superseded and was dropped", oldest.filename)

    def _unlink(self, path: str) -> None:
        if self.files.exists(path):
            self.files.unlink(path)

    def _expired(self, now_ms: int) -> bool:
        """Whether the oldest snapshot is past one of the bounds; its file time is that of its last change."""
        if self.config.max_retention_bytes >= 0:
            sizes = {name: size for name, _, size, _ in self.files.scan(self.directory)}
            total = self.log.size + sum(sizes.get(snapshot.filename, 0) for snapshot in self.snapshots)
            if total > self.config.max_retention_bytes:
                return True
        age_ms = now_ms - self.files.modified_ms(self.snapshot_path(self.snapshots[0]))
        return 0 <= self.config.max_retention_ms < age_ms

    def close(self) -> None:
        self.log.flush()
        self.log.close()


def _whole_batches(data: bytes) -> tuple[int, int]:
    """Bytes of whole batches at the start of `data`, and the offset after them."""
    pos = next_offset = 0
    while pos + 61 <= len(data):
        end = pos + 12 + int.from_bytes(data[pos + 8 : pos + 12], "big")
        if end > len(data):
            break
        base_offset = int.from_bytes(data[pos : pos + 8], "big")
        next_offset = base_offset + int.from_bytes(data[pos + 23 : pos + 27], "big") + 1
        pos = end
    return pos, next_offset
