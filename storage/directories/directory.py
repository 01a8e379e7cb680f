"""One of `log.dirs`: its lock, its identity, its checkpoints and whether it can still be trusted.

Files at its top: `.lock` (held while a broker runs), `meta.properties` (whose directory this is),
`.kafka_cleanshutdown` (JSON with the broker epoch; written last by an orderly stop and removed first by the next
start, so a crash while loading counts as a crash), and the offset checkpoints, each a table `topic partition offset`
replaced as a whole."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Mapping

from pylogd.metadata.topic_names import CLUSTER_METADATA_TOPIC
from pylogd.protocol import uuids
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.runtime.file_lock import FileLock, LockHeld
from pylogd.runtime.files import FileSystem
from pylogd.storage import checkpoint_file

logger = logging.getLogger(__name__)

CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
LOCK_FILE = ".lock"
META_PROPERTIES_FILE = "meta.properties"
DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
FUTURE_SUFFIX = "-future"
#: Kept by tiered storage; no partition.
_INDEX_CACHE = "remote-log-index-cache"
_NAME_MAX = 255
#: Above this many changed files one sync of the file system is cheaper than a sync of each.
SYNC_TOGETHER_MIN = 64

_PARTITION_NAME = re.compile(r"(.+)-(\d+)")
_ASIDE_NAME = re.compile(r"(.+)-(\d+)\.([0-9a-f]+)(-delete|-stray|-future)")

TopicPartition = tuple[str, int]


class DirectoryInUse(Exception):
    """Another broker has the directory; the message names it and what to do."""


class DuplicatePartition(Exception):
    """The same partition is in two directories."""


class NoDirectory(Exception):
    """No log directory is usable."""


class LogDirectory:
    """`failure` is None while the directory is online."""

    def __init__(self, files: FileSystem, path: str) -> None:
        self._files = files
        self.path = path
        self.id: bytes | None = None
        self.failure: str | None = None
        self.clean = False
        #: The epoch this broker had when it stopped cleanly; -1 when it did not.
        self.stopped_broker_epoch = -1
        self.recovery_points: dict[TopicPartition, int] = {}
        self.log_start_offsets: dict[TopicPartition, int] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        #: Partition -> name of its subdirectory.
        self.partitions: dict[TopicPartition, str] = {}
        #: Subdirectories of deleted partitions, to be removed.
        self.doomed: list[str] = []
        self.disk_full = False
        self.below_floor = False
        self._lock: FileLock | None = None

    @property
    def online(self) -> bool:
        return self.failure is None

    # -- opening

    def lock(self) -> None:
        """DirectoryInUse when another broker, ours or a JVM's, holds it."""
        self._files.mkdirs(self.path)
        try:
            self._lock = self._files.lock(f"{self.path}/{LOCK_FILE}")
        except LockHeld:
            raise DirectoryInUse(
                f"log directory {self.path} is locked by a running broker; stop that one, or use another log.dirs"
            ) from None

    def unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def open(self) -> None:
        """Reads everything at the top of the directory. OSError when the disk fails."""
        files = self._files
        self.id = read_directory_id(files, self.path)
        marker = f"{self.path}/{CLEAN_SHUTDOWN_FILE}"
        if files.exists(marker):
            self.clean = True
            self.stopped_broker_epoch = _broker_epoch(files.read_bytes(marker))
            files.unlink(marker)
        self.recovery_points = self._read(checkpoint_file.RECOVERY_POINT)
        self.log_start_offsets = self._read(checkpoint_file.LOG_START_OFFSET)
        self.high_watermarks = self._read(checkpoint_file.HIGH_WATERMARK)
        self.list_partitions()

    def list_partitions(self) -> None:
        for name, is_dir, _, _ in self._files.scan(self.path):
            if not is_dir or "-" not in name:
                continue
            aside = _ASIDE_NAME.fullmatch(name)
            if aside is not None and name.endswith((DELETE_SUFFIX, STRAY_SUFFIX, FUTURE_SUFFIX)):
                if name.endswith(DELETE_SUFFIX):
                    self.doomed.append(name)
                continue
            plain = _PARTITION_NAME.fullmatch(name)
            if plain is None or name == _INDEX_CACHE:
                if name != _INDEX_CACHE:
                    logger.warning("%s/%s is not the directory of a partition and is left alone", self.path, name)
                continue
            if plain[1] != CLUSTER_METADATA_TOPIC:
                self.partitions[plain[1], int(plain[2])] = name

    def _read(self, name: str) -> dict[TopicPartition, int]:
        """A broken table is an empty one: recovery scans more, the log start is that of the first segment."""
        try:
            return checkpoint_file.read_offsets(self._files, f"{self.path}/{name}")
        except checkpoint_file.CheckpointError as error:
            logger.warning("%s; starting with an empty table", error)
            return {}

    # -- writing: worker, except where the caller must wait

    def write_checkpoint(self, name: str, offsets: Mapping[TopicPartition, int], durable: bool = True) -> None:
        checkpoint_file.write_offsets(self._files, f"{self.path}/{name}", offsets, durable)

    def write_clean_shutdown(self, broker_epoch: int) -> None:
        text = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
        self._files.write_atomically(f"{self.path}/{CLEAN_SHUTDOWN_FILE}", text.encode())

    def remove(self, name: str) -> None:
        """Deletes a subdirectory with its files."""
        files = self._files
        path = f"{self.path}/{name}"
        if not files.is_dir(path):
            return
        for entry in files.listdir(path):
            files.unlink(f"{path}/{entry}")
        files.rmdir(path)

    def __repr__(self) -> str:
        return f"LogDirectory({self.path!r}, {'online' if self.online else self.failure})"


def choose_directory(
    directories: list[LogDirectory], directory_id: bytes | None, cordoned: Collection[str]
) -> LogDirectory:
    """Where a new partition goes: into the given directory, or into the one with the fewest partitions."""
    online = [directory for directory in directories if directory.online]
    if not online:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "No log directory is online.")
    for directory in online:
        if directory_id is not None and directory.id == directory_id:
            return directory
    usable = [directory for directory in online if directory.path not in cordoned] or online
    return min(usable, key=lambda directory: len(directory.partitions))


def aside_name(topic: str, partition: int, unique: str, suffix: str) -> str:
    """Kafka's name for a partition directory on its way out; a long topic name is cut to fit a file name."""
    ending = f"-{partition}.{unique}{suffix}"
    return topic[: _NAME_MAX - len(ending)] + ending


def read_directory_id(files: FileSystem, path: str) -> bytes | None:
    """`directory.id` of meta.properties; None when the file or the line is missing."""
    try:
        text = files.read_bytes(f"{path}/{META_PROPERTIES_FILE}").decode("latin-1")
    except FileNotFoundError:
        return None
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "directory.id":
            return uuids.from_text(value.strip())
    return None


def _broker_epoch(data: bytes) -> int:
    try:
        epoch = json.loads(data)["brokerEpoch"]
    except (ValueError, KeyError, TypeError):
        return -1
    return epoch if isinstance(epoch, int) else -1
