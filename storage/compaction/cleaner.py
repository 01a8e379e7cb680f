"""Which log to compact next, and the loop that has it compacted and swaps the result in.

How far a log was compacted is in `cleaner-offset-checkpoint`, one per log directory; what is dirty behind it and when
that is too much, `dirtiness` knows. The dirtiest log goes first.

The log stays in use meanwhile. A finished segment is swapped in only if the log's generation is the one the job was
made from (a truncation, a deletion, a moved start void it); then the job ends, and the log is looked at anew. The
checkpoint moves after the last swap, so a crash in between costs a second compaction of the same segments, never a
record.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pylogd.config.values import Values
from pylogd.runtime.clock import Clock
from pylogd.runtime.files import FileSystem
from pylogd.runtime.workers import Workers
from pylogd.storage import checkpoint_file
from pylogd.storage.checkpoint_file import TopicPartition
from pylogd.storage.compaction.compactor import CompactionFailed, Compactor, ProcessCompactor
from pylogd.storage.compaction.dirtiness import LogToClean, closed_segments, examine
from pylogd.storage.log.flush_plan import FlushableLog
from pylogd.storage.log.log import DISK_FULL_ERRORS, Log
from pylogd.storage.segments.segment import CLEANED_SUFFIX, Segment

if TYPE_CHECKING:
    from pylogd.storage.compaction.compaction_job import CleanedGroup, CompactionJob

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class CleanerConfig:
    """The `log.cleaner.*` settings."""

    enable: bool = True
    threads: int = 1
    dedupe_buffer_size: int = 128 << 20
    io_buffer_load_factor: float = 0.9
    io_max_bytes_per_second: float = float("inf")
    backoff_ms: int = 15_000

    @classmethod
    def from_values(cls, values: Values) -> CleanerConfig:
        """From a broker configuration by Kafka's names."""
        return cls(
            enable=values["log.cleaner.enable"],
            threads=values["log.cleaner.threads"],
            dedupe_buffer_size=values["log.cleaner.dedupe.buffer.size"],
            io_buffer_load_factor=values["log.cleaner.io.buffer.load.factor"],
            io_max_bytes_per_second=values["log.cleaner.io.max.bytes.per.second"],
            backoff_ms=values["log.cleaner.backoff.ms"],
        )


def plan_job(target: LogToClean, config: CleanerConfig, now_ms: int) -> CompactionJob:
    """Everything a worker needs to know; nothing in it changes with the log."""
    # Not loaded before there is something to compact.
    from pylogd.storage.compaction.compaction_job import CompactionJob, LastRecord, Source

    log = target.log
    sources = [
        Source(
            segment.base_offset,
            segment.size,
            segment.offset_index.entries * segment.offset_index.entry.size,
            segment.time_index.entries * segment.time_index.entry.size,
            segment.modified_ms,
        )
        for segment, _ in closed_segments(log)
        if segment.base_offset < target.first_uncleanable_offset
    ]
    return CompactionJob(
        directory=log.directory,
        name=log.name,
        config=log.config,
        sources=sources,
        first_dirty_offset=target.first_dirty_offset,
        first_uncleanable_offset=target.first_uncleanable_offset,
        now_ms=now_ms,
        producers={
            producer_id: LastRecord(entry.last_offset, entry.producer_epoch)
            for producer_id, entry in log.producers.producers.items()
        },
        aborted=log.aborted_transactions(sources[0].base_offset, target.first_uncleanable_offset) if sources else [],
        map_bytes=config.dedupe_buffer_size // max(1, config.threads),
        load_factor=config.io_buffer_load_factor,
        io_bytes_per_second=config.io_max_bytes_per_second / max(1, config.threads),
    )


def swap_in(log: Log, group: CleanedGroup) -> None:
    """Puts a cleaned segment in the place of those it was made from."""
    replaced = frozenset(group.replaces)
    old = [segment for segment in log.segments if segment.base_offset in replaced]
    new = Segment(
        log.environment,
        log.directory,
        group.base_offset,
        log.config,
        new=False,
        size=group.size,
        modified_ms=group.modified_ms,
        suffix=CLEANED_SUFFIX,
    )
    log.replace_segments([new], old)


def sweep(files: FileSystem, directory: str) -> None:
    """Removes what an earlier job left unfinished. No `.cleaned` file of another segment may lie around during a swap:
    after a crash in the middle of it, loading would take that file for a sign that the swap had not been decided."""
    for name in files.listdir(directory):
        if name.endswith(CLEANED_SUFFIX):
            files.unlink(f"{directory}/{name}")


class LogCleaner:
    """The cleaner of all logs of a broker. `logs` gives the open ones, whatever their policy."""

    def __init__(
        self,
        logs: Callable[[], Iterable[Log]],
        files: FileSystem,
        clock: Clock,
        workers: Workers,
        config: CleanerConfig | None = None,
        compactor: Callable[[], Compactor] = ProcessCompactor,
    ) -> None:
        self._logs = logs
        self._files = files
        self._clock = clock
        self._workers = workers
        self.config = config if config is not None else CleanerConfig()
        self._compactor = compactor
        self._checkpoints: dict[str, dict[TopicPartition, int]] = {}
        #: Directories whose checkpoint names partitions that have gone.
        self._stale: dict[str, None] = {}
        self._writing = asyncio.Lock()
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = False
        #: Logs under compaction right now.
        self.in_progress: set[TopicPartition] = set()
        #: Logs whose compaction failed because of their contents; they are left alone until the broker restarts.
        self.uncleanable: set[TopicPartition] = set()
        #: Of the last look at all logs: how dirty the dirtiest one was.
        self.max_dirty_ratio = 0.0

    # -- life

    def start(self) -> None:
        if self.config.enable and not self._tasks:
            loop = asyncio.get_running_loop()
            self._tasks = [loop.create_task(self._work()) for _ in range(self.config.threads)]

    async def close(self) -> None:
        """Stops at once; a job under way is given up and its files are removed when the log is loaded again."""
        self._closing = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    def reconfigure(self, config: CleanerConfig) -> None:
        """New settings hold from the next job on. A changed number of threads needs new tasks: a job under way is given
        up, as at a stop, and started over."""
        restart = bool(self._tasks) and config.threads != self.config.threads
        self.config = config
        if restart:
            for task in self._tasks:
                task.cancel()
            self._tasks = []
            self.start()
        self.wake()

    def wake(self) -> None:
        """Looks for work now instead of after the back-off."""
        self._wake.set()

    async def _work(self) -> None:
        compactor = self._compactor()
        try:
            while not self._closing:
                self._wake.clear()  # before looking: a call from now on is about something newer
                await self._write_stale()
                target = self.choose()
                if target is not None:
                    await self.clean(target, compactor)
                    continue
                await compactor.close()  # an idle broker has no compaction process
                try:
                    await asyncio.wait_for(self._wake.wait(), self.config.backoff_ms / 1000)
                except TimeoutError:
                    continue
        finally:
            await compactor.close()

    # -- choosing

    def choose(self) -> LogToClean | None:
        """The dirtiest log that is due."""
        now_ms = self._clock.now_ms()
        self.max_dirty_ratio = 0.0
        best: LogToClean | None = None
        alive = set()
        for log in self._logs():
            partition = (log.topic, log.partition)
            alive.add(partition)
            if not log.config.compact or log.offline or log.closed:
                continue
            if partition in self.in_progress or partition in self.uncleanable or len(log.segments) < 2:
                continue
            target = examine(log, self._table(os.path.dirname(log.directory)).get(partition), now_ms)
            self.max_dirty_ratio = max(self.max_dirty_ratio, target.ratio)
            if target.due and (best is None or target.ratio > best.ratio):
                best = target
        self.uncleanable &= alive
        return best

    # -- cleaning

    async def clean(self, target: LogToClean, compactor: Compactor) -> bool:
        """One round for one log; True when it went through to the end."""
        log = target.log
        partition = (log.topic, log.partition)
        job = plan_job(target, self.config, self._clock.now_ms())
        generation = log.generation
        end_offset = target.first_dirty_offset
        last: CleanedGroup | None = None

        def swap(group: CleanedGroup) -> bool:
            nonlocal generation, end_offset, last
            if log.generation != generation or log.closed or log.offline:
                return False
            swap_in(log, group)
            generation = log.generation
            end_offset, last = group.end_offset, group
            return True

        self.in_progress.add(partition)
        try:
            await self._workers.offload(sweep, self._files, log.directory)
            finished = await compactor.run(job, swap)
        except CompactionFailed as error:
            if log.generation == generation and not self._closing:
                logger.warning("%s cannot be compacted and is left alone until a restart: %s", log.name, error)
                self.uncleanable.add(partition)
            return False
        except OSError as error:
            if error.errno in DISK_FULL_ERRORS:
                logger.warning("%s: no space left to compact it, trying again later: %s", log.name, error)
                await asyncio.sleep(self.config.backoff_ms / 1000)
            elif log.generation == generation and not log.closed:
                log.environment.failed(log, "compacting", error)
            return False
        finally:
            self.in_progress.discard(partition)
        if not finished:
            logger.info("%s changed while it was compacted; the rest of this round is dropped", log.name)
            if not log.closed:
                await self._workers.offload(sweep, self._files, log.directory)
            return False
        if last is not None:
            stats = last.stats
            logger.info(
                "%s: compacted offsets %d to %d, %d -> %d bytes, %d -> %d records, %d keys mapped",
                log.name,
                target.first_dirty_offset,
                end_offset,
                stats.bytes_read,
                stats.bytes_written,
                stats.records_read,
                stats.records_written,
                stats.map_entries,
            )
        await self._record(log, min(end_offset, log.log_end_offset))  # it may have been cut since the last swap
        return True

    # -- checkpoints

    def _table(self, directory: str) -> dict[TopicPartition, int]:
        """The checkpoints of a log directory, read on first use."""
        table = self._checkpoints.get(directory)
        if table is None:
            try:
                table = checkpoint_file.read_offsets(self._files, f"{directory}/{checkpoint_file.CLEANER_OFFSET}")
            except checkpoint_file.CheckpointError as error:
                logger.warning("%s; compacted logs start over", error)
                table = {}
            self._checkpoints[directory] = table
        return table

    async def _record(self, log: Log, offset: int) -> None:
        directory = os.path.dirname(log.directory)
        self._table(directory)[log.topic, log.partition] = offset
        try:
            await self._write(directory)
        except OSError as error:
            if error.errno not in DISK_FULL_ERRORS:
                log.environment.failed(log, "writing the cleaner checkpoint", error)

    async def _write_stale(self) -> None:
        while self._stale:
            directory, _ = self._stale.popitem()
            try:
                await self._write(directory)
            except OSError as error:
                logger.warning("the cleaner checkpoint in %s could not be written: %s", directory, error)

    async def _write(self, directory: str) -> None:
        async with self._writing:
            table = dict(self._table(directory))
            path = f"{directory}/{checkpoint_file.CLEANER_OFFSET}"
            await self._workers.offload(checkpoint_file.write_offsets, self._files, path, table)

    def truncated(self, log: FlushableLog, offset: int) -> None:
        """The log was cut: what comes at and behind `offset` from now on has never been compacted."""
        directory = os.path.dirname(log.directory)
        table = self._table(directory)
        if table.get((log.topic, log.partition), -1) > offset:
            table[log.topic, log.partition] = offset
            self._stale[directory] = None
            self.wake()

    def forget(self, topic: str, partition: int, directory: str) -> None:
        """The partition leaves the directory: a later one of the same name must not inherit its checkpoint."""
        self.uncleanable.discard((topic, partition))
        if self._table(directory).pop((topic, partition), None) is not None:
            self._stale[directory] = None
            self.wake()
