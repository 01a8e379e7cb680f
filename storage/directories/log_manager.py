"""All logs of a broker, over several log directories.

Loading is lazy after a clean stop: a start reads a few small files per log directory, and a partition is opened when
somebody asks for it. After a crash every log is recovered first, in worker threads, with progress in the log.

A directory whose disk fails goes offline with its partitions, and the others go on; who owns the manager is told. A
full disk is not a failure: writes are refused until there is room, reads continue.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.runtime.clock import Clock
from pylogd.runtime.files import DISK_FULL_ERRORS, FileSystem
from pylogd.runtime.workers import Workers
from pylogd.storage.directories.directory import (
    DELETE_SUFFIX,
    STRAY_SUFFIX,
    DuplicatePartition,
    LogDirectory,
    NoDirectory,
    TopicPartition,
    aside_name,
    choose_directory,
)
from pylogd.storage.directories.directory_closing import close_logs
from pylogd.storage.directories.directory_environment import DirectoryEnvironment, TruncationListener
from pylogd.storage.directories.directory_jobs import DirectoryJobs
from pylogd.storage.directories.directory_recovery import recover_directory
from pylogd.storage.directories.maintenance import Maintenance
from pylogd.storage.directories.manager_settings import ManagerSettings
from pylogd.storage.directories.offset_checkpoints import Checkpoints
from pylogd.storage.log.flushing import Flusher
from pylogd.storage.log_config import LogConfig
from pylogd.storage.partition_metadata import MalformedMetadata
from pylogd.storage.recovery import loading
from pylogd.storage.recovery.loading import InconsistentTopicId

if TYPE_CHECKING:
    from pylogd.storage.log.log import Log

logger = logging.getLogger(__name__)


class LogManager:
    """Owner of all logs; lives on the event loop. `config_for(topic)` gives a topic's current configuration, `unique` a
    fresh hexadecimal name for directories on their way out."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        files: FileSystem,
        clock: Clock,
        workers: Workers,
        paths: list[str],
        *,
        settings: ManagerSettings | None = None,
        config_for: Callable[[str], LogConfig] | None = None,
        chance: random.Random | None = None,
        on_directory_failure: Callable[[LogDirectory, list[TopicPartition]], None] | None = None,
    ) -> None:
        self.loop = loop
        self.files = files
        self.clock = clock
        self.workers = workers
        self.settings = settings if settings is not None else ManagerSettings()
        self.chance = chance if chance is not None else random.Random(0)
        self.config_for = config_for if config_for is not None else _default_config
        self.on_directory_failure = on_directory_failure
        #: Told of every log that is cut, and where.
        self.truncation_listeners: list[TruncationListener] = []
        self.directories = [LogDirectory(files, path) for path in paths]
        self.flusher = Flusher(workers)
        self.jobs = DirectoryJobs(loop, workers, self.directory_failed)
        self.checkpoints = Checkpoints(loop, self.directories, self.jobs, self.peek)
        self.maintenance = Maintenance(self)
        self.closed = False
        self._environments = {directory.path: self._environment(directory) for directory in self.directories}
        self._logs: dict[TopicPartition, Log] = {}
        self._homes: dict[TopicPartition, LogDirectory] = {}

    def _environment(self, directory: LogDirectory) -> DirectoryEnvironment:
        return DirectoryEnvironment(
            directory,
            self.files,
            self.clock,
            self.chance,
            jobs=self.jobs,
            flusher=self.flusher,
            checkpoints=self.checkpoints,
            truncation_listeners=self.truncation_listeners,
            directory_failed=self.directory_failed,
        )

    # -- opening

    def open(self) -> None:
        """Locks and reads the log directories. DirectoryInUse when one is taken; a directory whose disk fails is
        offline."""
        self.files.own()
        for directory in self.directories:
            try:
                directory.lock()
                directory.open()
            except OSError as error:
                self.directory_failed(directory, f"opening: {error}")
                continue
            except BaseException:
                self._unlock()
                raise
            for key in directory.partitions:
                other = self._homes.get(key)
                if other is not None:
                    self._unlock()
                    raise DuplicatePartition(
                        f"partition {key[0]}-{key[1]} is in {other.path} and in {directory.path}; one of them must go"
                    )
                self._homes[key] = directory
        if not any(directory.online for directory in self.directories):
            self._unlock()
            raise NoDirectory("none of the log directories can be used: " + ", ".join(map(repr, self.directories)))

    async def recover(self) -> None:
        """Opens every log of the directories that were not stopped cleanly; then starts removing what was deleted."""
        jobs = [
            recover_directory(self, directory)
            for directory in self.directories
            if directory.online and not directory.clean
        ]
        if jobs:
            await asyncio.gather(*jobs)
        for directory in self.directories:
            for name in directory.doomed:
                self._remove_later(directory, name)

    def start(self) -> None:
        """Starts the periodic work: retention, flushing, checkpoints, expiry, the watch on free space."""
        self.maintenance.start()

    # -- logs

    def get(self, topic: str, partition: int) -> Log | None:
        """The log, loaded now if it was not yet; None when there is none. KAFKA_STORAGE_ERROR when its disk failed."""
        key = (topic, partition)
        log = self._logs.get(key)
        if log is not None:
            return log
        directory = self._homes.get(key)
        if directory is None:
            return None
        if not directory.online:
            raise _offline(key, directory)
        return self._load(key, directory)

    def create(
        self,
        topic: str,
        partition: int,
        *,
        topic_id: bytes | None = None,
        config: LogConfig | None = None,
        directory_id: bytes | None = None,
    ) -> Log:
        """The log, made if need be: in the given directory, or in the one with the fewest partitions. A directory left
        by another topic of the same name is INCONSISTENT_TOPIC_ID."""
        key = (topic, partition)
        log = self._logs.get(key)
        if log is None:
            directory = self._homes.get(key) or choose_directory(self.directories, directory_id, self.settings.cordoned)
            if not directory.online:
                raise _offline(key, directory)
            if key not in directory.partitions:
                with self._guarding(directory, key):
                    self.checkpoints.before_creation(directory, key)
            log = self._load(key, directory, topic_id, config)
        elif topic_id is not None:
            if log.topic_id is None:
                log.topic_id = topic_id
                log.metadata_written = False
            elif log.topic_id != topic_id:
                raise _inconsistent(key)
        if not log.metadata_written:
            self.maintenance.write_metadata(log)
        return log

    def _load(
        self,
        key: TopicPartition,
        directory: LogDirectory,
        topic_id: bytes | None = None,
        config: LogConfig | None = None,
    ) -> Log:
        with self._guarding(directory, key):
            return self.adopt(key, self.open_log(key, directory, topic_id, config, None))

    @contextmanager
    def _guarding(self, directory: LogDirectory, key: TopicPartition) -> Iterator[None]:
        """Errors of opening a log become what a client is told."""
        try:
            yield
        except InconsistentTopicId as error:
            raise _inconsistent(key) from error
        except MalformedMetadata as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        except OSError as error:
            if error.errno in DISK_FULL_ERRORS:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The disk of {directory.path} is full.") from error
            self.directory_failed(directory, f"opening {key[0]}-{key[1]}: {error}")
            raise _offline(key, directory) from error

    def open_log(
        self,
        key: TopicPartition,
        directory: LogDirectory,
        topic_id: bytes | None,
        config: LogConfig | None,
        progress: Callable[[int], None] | None,
    ) -> Log:
        """May run in a worker; `adopt` follows on the loop."""
        topic, partition = key
        name = directory.partitions.get(key, f"{topic}-{partition}")
        return loading.open_log(
            self._environments[directory.path],
            f"{directory.path}/{name}",
            topic,
            partition,
            config if config is not None else self.config_for(topic),
            topic_id=topic_id,
            log_start_offset=directory.log_start_offsets.get(key, 0),
            recovery_point=directory.recovery_points.get(key, 0),
            clean=directory.clean,
            producer_expiration_ms=self.settings.producer_expiration_ms,
            progress=progress,
            sync=progress is None,
        )

    def adopt(self, key: TopicPartition, log: Log) -> Log:
        directory = self._directory_of(log)
        checkpointed = directory.high_watermarks.get(key, log.log_start_offset)
        log.high_watermark = min(max(checkpointed, log.log_start_offset), log.log_end_offset)
        log.offline = not directory.online
        self._logs[key] = log
        self._homes[key] = directory
        directory.partitions[key] = log.directory.rpartition("/")[2]
        return log

    def _directory_of(self, log: Log) -> LogDirectory:
        path = log.directory.rpartition("/")[0]
        return next(directory for directory in self.directories if directory.path == path)

    def directory_of(self, topic: str, partition: int) -> LogDirectory | None:
        """Where the partition lives, loaded or not."""
        return self._homes.get((topic, partition))

    def directory_by_id(self, directory_id: bytes) -> LogDirectory | None:
        return next((directory for directory in self.directories if directory.id == directory_id), None)

    def partitions(self) -> list[TopicPartition]:
        """All that are on disk, loaded or not."""
        return list(self._homes)

    def peek(self, key: TopicPartition) -> Log | None:
        """The log if it is loaded."""
        return self._logs.get(key)

    def loaded(self) -> Iterator[Log]:
        """The logs in memory; a copy, so that the caller may yield to the loop in between."""
        return iter(list(self._logs.values()))

    def update_config(self, topic: str, config: LogConfig) -> None:
        """A topic's configuration changed."""
        for (name, _), log in self._logs.items():
            if name == topic:
                log.update_config(config)

    # -- deletion

    def delete(self, topic: str, partition: int) -> bool:
        """Takes the partition away: its directory is renamed now and removed after `file.delete.delay.ms`."""
        return self._put_aside(topic, partition, DELETE_SUFFIX)

    def put_aside_stray(self, topic: str, partition: int) -> bool:
        """A partition that nothing in the cluster's metadata accounts for: renamed and kept, for a person to look
        at."""
        return self._put_aside(topic, partition, STRAY_SUFFIX)

    def _put_aside(self, topic: str, partition: int, suffix: str) -> bool:
        key = (topic, partition)
        directory = self._homes.get(key)
        if directory is None:
            return False
        if not directory.online:
            raise _offline(key, directory)
        name = directory.partitions[key]
        aside = aside_name(topic, partition, f"{self.chance.getrandbits(128):032x}", suffix)
        log = self._logs.pop(key, None)
        try:
            self.files.rename(f"{directory.path}/{name}", f"{directory.path}/{aside}")
        except OSError as error:
            self.directory_failed(directory, f"renaming {name}: {error}")
            raise _offline(key, directory) from error
        del self._homes[key]
        del directory.partitions[key]
        for table in (directory.recovery_points, directory.log_start_offsets, directory.high_watermarks):
            table.pop(key, None)
        if log is not None:
            log.moved(f"{directory.path}/{aside}")
            log.generation += 1
            log.offline = True
            log.close_handles()
        if suffix == DELETE_SUFFIX:
            self._remove_later(directory, aside)
        self.checkpoints.partition_gone(directory, key)
        return True

    def _remove_later(self, directory: LogDirectory, name: str) -> None:
        def remove() -> None:
            directory.remove(name)
            logger.info("removed %s/%s", directory.path, name)

        self.jobs.later(self.settings.file_delete_delay_ms, directory, remove)

    # -- failure

    def directory_failed(self, directory: LogDirectory, reason: str) -> None:
        """From now on every use of the directory's partitions is KAFKA_STORAGE_ERROR."""
        if directory.failure is not None:
            return
        directory.failure = reason
        lost = list(directory.partitions)
        logger.error("log directory %s is offline with %d partitions: %s", directory.path, len(lost), reason)
        for key in lost:
            log = self._logs.get(key)
            if log is not None:
                log.offline = True
        if self.on_directory_failure is not None:
            self.on_directory_failure(directory, lost)

    # -- closing

    async def close(self, broker_epoch: int = -1) -> None:
        """Orderly stop: everything is flushed, checkpointed and closed, and a marker says so."""
        if self.closed:
            return
        self.closed = self.jobs.closed = True
        self.maintenance.stop()
        await self.flusher.drain()
        await self.jobs.drain()
        await asyncio.gather(
            *(self._close_directory(directory, broker_epoch) for directory in self.directories if directory.online)
        )
        self._unlock()

    async def _close_directory(self, directory: LogDirectory, broker_epoch: int) -> None:
        logs = [log for key in directory.partitions if (log := self._logs.get(key)) is not None]
        try:
            await self.workers.offload(close_logs, self.files, self.checkpoints, directory, logs, broker_epoch)
        except OSError as error:
            self.directory_failed(directory, f"closing: {error}")

    def abandon(self) -> None:
        """For tests and a second signal: lets go of everything without writing, as a crash would."""
        self.closed = self.jobs.closed = True
        self.maintenance.stop()
        for log in self._logs.values():
            log.close_handles()
        self._unlock()

    def _unlock(self) -> None:
        for directory in self.directories:
            directory.unlock()


def _default_config(topic: str) -> LogConfig:
    return LogConfig()


def _offline(key: TopicPartition, directory: LogDirectory) -> KafkaError:
    return KafkaError(
        ErrorCode.KAFKA_STORAGE_ERROR, f"The log directory {directory.path} of {key[0]}-{key[1]} is offline."
    )


def _inconsistent(key: TopicPartition) -> KafkaError:
    return KafkaError(
        ErrorCode.INCONSISTENT_TOPIC_ID, f"The log of {key[0]}-{key[1]} belongs to another topic of that name."
    )
