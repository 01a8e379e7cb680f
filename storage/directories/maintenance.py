"""What happens to logs by the clock: retention, flushing, checkpoints, expiry of producers, the watch on free space.

Each kind of work is one task on the event loop that sleeps, works in slices short enough for the requests in between,
and leaves what blocks to a worker. A failing round is logged and the next one comes as planned.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from pylogd.protocol.errors import KafkaError
from pylogd.storage import checkpoint_file
from pylogd.storage.directories.directory import SYNC_TOGETHER_MIN, LogDirectory

if TYPE_CHECKING:
    from pylogd.storage.directories.log_manager import LogManager
    from pylogd.storage.log.log import Log

logger = logging.getLogger(__name__)

#: How long a slice of periodic work may hold the loop.
_SLICE_S = 0.004
#: asyncio's timers take no more; an interval beyond is "never".
_INTERVAL_MS_MAX = 30 * 24 * 3600 * 1000


class Maintenance:
    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self._tasks: list[asyncio.Task[None]] = []
        self._unnamed: list[Log] = []
        self._naming = False

    def start(self) -> None:
        settings = self._manager.settings
        first = settings.initial_task_delay_ms
        self._every(settings.retention_check_interval_ms, first, self.check_retention)
        self._every(settings.flush_scheduler_interval_ms, first, self.flush_dirty_logs)
        write = self._manager.checkpoints.write_changed
        interval = settings.recovery_point_checkpoint_interval_ms
        self._every(interval, first, partial(write, checkpoint_file.RECOVERY_POINT))
        interval = settings.log_start_offset_checkpoint_interval_ms
        self._every(interval, first, partial(write, checkpoint_file.LOG_START_OFFSET))
        interval = settings.high_watermark_checkpoint_interval_ms
        self._every(interval, interval, partial(write, checkpoint_file.HIGH_WATERMARK))
        interval = settings.producer_expiration_check_interval_ms
        self._every(interval, interval, self.expire_producers)
        self._every(settings.disk_check_interval_ms, 0, self.watch_free_space)

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()

    def _every(self, interval_ms: int, first_ms: int, work: Callable[[], Awaitable[None]]) -> None:
        if 0 < interval_ms <= _INTERVAL_MS_MAX:
            self._tasks.append(self._manager.loop.create_task(self._repeat(interval_ms, first_ms, work)))

    async def _repeat(self, interval_ms: int, first_ms: int, work: Callable[[], Awaitable[None]]) -> None:
        await asyncio.sleep(first_ms / 1000)
        while True:
            try:
                await work()
            except (KafkaError, OSError) as error:
                logger.error("periodic work of the logs failed: %s", error)
            except Exception:
                logger.exception("periodic work of the logs failed")
            await asyncio.sleep(interval_ms / 1000)

    # -- retention, flush, expiry

    async def check_retention(self) -> None:
        """Compacted logs too: what lies below their start goes. A log not asked for since the start is opened for
        it."""
        manager = self._manager
        started = manager.loop.time()
        for topic, partition in manager.partitions():
            home = manager.directory_of(topic, partition)
            if home is None or not home.online:
                continue
            try:
                log = manager.get(topic, partition)
                if log is not None:
                    log.delete_old_segments()
            except KafkaError as error:
                logger.warning("retention of %s-%d: %s", topic, partition, error)
            if manager.loop.time() - started > _SLICE_S:
                await asyncio.sleep(0)
                started = manager.loop.time()

    async def flush_dirty_logs(self) -> None:
        now_ms = self._manager.clock.now_ms()
        for log in self._manager.loaded():
            if log.log_end_offset > log.recovery_point and now_ms - log.last_flush_ms >= log.config.flush_ms:
                self._manager.flusher.request(log)

    async def expire_producers(self) -> None:
        now_ms = self._manager.clock.now_ms()
        for log in self._manager.loaded():
            if log.producers.producers:
                log.producers.remove_expired(now_ms)

    # -- partition.metadata

    def write_metadata(self, log: Log) -> None:
        """Queues the file: thousands of partitions created at once must not wait for thousands of fsyncs."""
        self._unnamed.append(log)
        if not self._naming:
            self._naming = True
            self._manager.loop.call_soon(self._name_some)

    def _name_some(self) -> None:
        logs, self._unnamed = self._unnamed, []
        by_directory: dict[str, list[Log]] = {}
        for log in logs:
            by_directory.setdefault(log.directory.rpartition("/")[0], []).append(log)
        waiting = len(by_directory)

        def done(_: object) -> None:
            nonlocal waiting
            waiting -= 1
            if waiting == 0:
                self._naming = False
                if self._unnamed and not self._manager.closed:
                    self._naming = True
                    self._name_some()

        for directory in self._manager.directories:
            part = by_directory.get(directory.path)
            if part:
                job = partial(self._name, directory, part)
                self._manager.jobs.offload(directory, "writing partition.metadata", job).add_done_callback(done)

    def _name(self, directory: LogDirectory, logs: list[Log]) -> None:
        """Worker. Many files share one sync. A stop leaves the rest to the closing of each log."""
        together = len(logs) > SYNC_TOGETHER_MIN
        for log in logs:
            if self._manager.closed:
                return
            if log.closed or log.offline:
                continue
            home = log.directory
            try:
                log.write_metadata(durable=not together)
            except FileNotFoundError:
                # A partition that is deleted loses its folder first and is marked after: neither is a broken disk.
                if not log.closed and not log.offline and self._manager.files.exists(home):
                    raise
        if together:
            self._manager.files.sync_file_system(directory.path)

    # -- free space

    async def watch_free_space(self) -> None:
        floor = self._manager.settings.disk_free_floor_bytes
        for directory in self._manager.directories:
            if not directory.online or floor <= 0:
                continue
            free = self._manager.files.free_bytes(directory.path)
            if free < floor and not directory.below_floor:
                directory.below_floor = True
                logger.warning(
                    "log directory %s has %d MiB left, below pylogd.disk.free.floor.bytes (%d MiB); appends "
                    "fail once it is full",
                    directory.path,
                    free >> 20,
                    floor >> 20,
                )
            elif free >= floor and directory.below_floor:
                directory.below_floor = False
                logger.info("log directory %s has %d MiB left, above the floor again", directory.path, free >> 20)
