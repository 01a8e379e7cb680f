"""What a log is made of, and the rules that hold for all of it: configuration, durability, failure.

`Appending` and `Reading` are the two hot paths over this state, and `Log` is all three together.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.runtime.files import DISK_FULL_ERRORS
from pylogd.storage import partition_metadata
from pylogd.storage.log.flush_plan import FlushDeferred, FlushPlan
from pylogd.storage.log_config import INT64_MAX, LogConfig
from pylogd.storage.producers.producer_state import ProducerStates
from pylogd.storage.segments.segment import RELATIVE_OFFSET_MAX, Segment
from pylogd.storage.segments.segment_list import Segments

if TYPE_CHECKING:
    from pylogd.storage.log.leader_epochs import EpochCache
    from pylogd.storage.log.log_environment import LogEnvironment


class DiskFull(KafkaError):
    """An append was refused for lack of space; the log is as it was before."""

    def __init__(self, directory: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, f"The disk of {directory} is full.")


class LogState:
    """One owner: everything runs on the thread of the event loop, except where a docstring says "worker"."""

    __slots__ = (
        "_after_max_ms",
        "_disk_full",
        "_epoch",
        "_flush_messages",
        "_index_interval_bytes",
        "_last_offset_max",
        "_naming",
        "_plain",
        "_plain_keyed",
        "_pwrite",
        "_recent_offsets",
        "_recent_positions",
        "_recent_start",
        "_roll_now_ms",
        "_roll_timestamp",
        "_segment_bytes",
        "_size_max",
        "_unsynced_closed",
        "_unsynced_snapshots",
        "active",
        "closed",
        "config",
        "directory",
        "entry_synced",
        "environment",
        "epochs",
        "flush_listeners",
        "generation",
        "high_watermark",
        "last_flush_ms",
        "log_end_offset",
        "log_start_offset",
        "metadata_written",
        "name",
        "offline",
        "partition",
        "producers",
        "recovery_point",
        "segments",
        "topic",
        "topic_id",
        "truncations",
    )

    def __init__(
        self,
        environment: LogEnvironment,
        directory: str,
        topic: str,
        partition: int,
        config: LogConfig,
        segments: Segments,
        epochs: EpochCache,
        producers: ProducerStates,
        *,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        topic_id: bytes | None,
    ) -> None:
        self.environment = environment
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.name = f"{topic}-{partition}"
        self.topic_id = topic_id
        self.segments = segments
        self.active: Segment = segments.last
        self.epochs = epochs
        self.producers = producers
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.recovery_point = recovery_point
        self.high_watermark = log_start_offset
        self.last_flush_ms = environment.clock.now_ms()
        #: Bumped by truncation, deletion and a moved start: results computed elsewhere from older segments are void.
        self.generation = 0
        #: A flush that began before a truncation says nothing about the log after it.
        self.truncations = 0
        self.offline = False
        self.closed = False
        #: Told on the loop's thread after the flushed offset moved; with `flush.messages=1` acknowledgements wait for
        #: it.
        self.flush_listeners: list[Callable[[LogState], None]] = []
        #: False while the partition's own directory entry may be lost by a crash.
        self.entry_synced = False
        #: False while `partition.metadata` still has to be written, off the event loop.
        self.metadata_written = True
        self._disk_full = False
        self._naming = threading.Lock()
        self._unsynced_closed: list[Segment] = []
        self._unsynced_snapshots: list[str] = []
        self._pwrite = environment.files.pwrite
        self._epoch: int | None = None
        self._recent_offsets: array[int] = array("q")
        self._recent_positions: array[int] = array("q")
        self._recent_start = INT64_MAX
        self.update_config(config)

    def update_config(self, config: LogConfig) -> None:
        """Takes effect with the next append or check; open segments keep the index size and jitter they were made
        with."""
        self.config = config
        # Batches of which only the header matters: of clients, and of coordinators, who never leave out a key.
        self._plain_keyed = (
            config.compression_type == "producer"
            and not config.log_append_time
            and config.message_timestamp_before_max_ms == INT64_MAX
            and config.pylogd_record_validation != "full"
        )
        self._plain = self._plain_keyed and not config.compact
        self._size_max = min(config.max_message_bytes, config.segment_bytes)
        self._segment_bytes = config.segment_bytes
        self._after_max_ms = config.message_timestamp_after_max_ms
        self._index_interval_bytes = config.index_interval_bytes
        self._flush_messages = config.flush_messages
        self._forget_roll_bounds()

    def _forget_roll_bounds(self) -> None:
        """The next append looks closely whether it must roll, and finds the bounds up to which others need not."""
        self._roll_timestamp = -INT64_MAX
        self._roll_now_ms = -1
        self._last_offset_max = self.active.base_offset + RELATIVE_OFFSET_MAX

    def activate(self, segment: Segment) -> None:
        """Makes `segment` the one that is appended to; what is remembered of the active segment no longer holds."""
        self.active = segment
        del self._recent_offsets[:]
        del self._recent_positions[:]
        self._recent_start = INT64_MAX
        self._forget_roll_bounds()

    def forget_epoch(self) -> None:
        self._epoch = None

    # -- failure

    @contextmanager
    def guarded(self, action: str) -> Iterator[None]:
        """For changes other than appends: an I/O error becomes KAFKA_STORAGE_ERROR and takes the directory offline,
        unless the disk is just full."""
        if self.offline:
            raise self._storage_error()
        try:
            yield
        except OSError as error:
            if error.errno in DISK_FULL_ERRORS:
                self._disk_full = True
                self.environment.disk_full(self, error)
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The disk of {self.directory} is full.") from error
            self.environment.failed(self, action, error)
            raise self._storage_error() from error

    def _storage_error(self) -> KafkaError:
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The log directory of {self.name} is offline.")

    # -- durability

    @property
    def flushed_offset(self) -> int:
        """Everything below is on stable storage."""
        return self.recovery_point

    def flush_plan(self, up_to: int | None = None) -> FlushPlan:
        """What a worker must sync so that everything below `up_to` (the log end) is durable."""
        end = self.log_end_offset if up_to is None else min(up_to, self.log_end_offset)
        start = self.recovery_point
        touched = self.segments.between(start, end) if end > start else []
        closed, self._unsynced_closed = self._unsynced_closed, []
        touched = [segment for segment in closed if segment not in touched] + touched
        snapshots, self._unsynced_snapshots = self._unsynced_snapshots, []
        return FlushPlan(
            self,
            self.environment.files,
            segments=touched,
            active=self.active,
            snapshots=snapshots,
            epochs=self.epochs,
            start=start,
            end=end,
        )

    def flush(self, up_to: int | None = None) -> None:
        """Syncs in the caller: for tests, shutdown and logs without an event loop around them."""
        plan = self.flush_plan(up_to)
        if not plan.segments:
            return
        try:
            plan.run()
        except FlushDeferred as deferred:
            self.defer_flush(plan, deferred)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The disk of {self.directory} is full.") from deferred
        except OSError as error:
            self.flush_failed(error)
            raise self._storage_error() from error
        self.mark_flushed(plan)

    def defer_flush(self, plan: FlushPlan, deferred: FlushDeferred) -> None:
        """A full disk kept the flush from writing its small files; nothing is lost, and the next flush does all of
        it."""
        self._unsynced_snapshots += plan.snapshots
        for segment in plan.segments:
            if segment is not self.active:
                self.note_closed(segment)
        self.environment.disk_full(self, deferred.cause)

    def flush_failed(self, error: OSError) -> None:
        """The kernel may have dropped what it could not write: the directory is not to be trusted any more."""
        self.environment.failed(self, "fsync", error)

    def note_closed(self, segment: Segment) -> None:
        """A segment was closed; the next flush owes its indexes a sync, even if all its records are flushed already."""
        if segment not in self._unsynced_closed:
            self._unsynced_closed.append(segment)

    def note_snapshot(self, path: str | None) -> None:
        """A producer snapshot was written without a sync; the next flush owes it one."""
        if path is not None:
            self._unsynced_snapshots.append(path)

    def mark_flushed(self, plan: FlushPlan) -> None:
        """The worker is done. After a truncation meanwhile its offset may lie beyond the log, or above bytes it never
        saw."""
        self.last_flush_ms = self.environment.clock.now_ms()
        if plan.truncations == self.truncations and plan.end > self.recovery_point:
            self.recovery_point = plan.end
            for listener in self.flush_listeners:
                listener(self)

    def write_metadata(self, durable: bool = True) -> None:
        """Worker: `partition.metadata`, once."""
        if self.metadata_written or self.topic_id is None or not self._naming.acquire(blocking=False):
            return  # or somebody else is at it
        try:
            partition_metadata.write(self.environment.files, self.directory, self.topic_id, durable)
            self.metadata_written = True
        finally:
            self._naming.release()
