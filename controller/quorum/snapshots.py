"""When a snapshot of the metadata is due, and writing it beside the log while the controller goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Protocol

from pylogd.controller.quorum.metadata_log import MetadataLog
from pylogd.controller.raft.voters import Membership
from pylogd.metadata.image import ClusterImage
from pylogd.metadata.snapshot import SnapshotId, image_records, snapshot_batches, write_snapshot
from pylogd.protocol import batch as batches
from pylogd.protocol.errors import KafkaError
from pylogd.runtime.clock import Clock
from pylogd.runtime.workers import Workers

logger = logging.getLogger(__name__)


class HasImage(Protocol):
    """Whatever holds the current image: it is another one after the lead was lost."""

    @property
    def image(self) -> ClusterImage: ...


class SnapshotWriter:
    """Counts what was appended since the last snapshot; one is written at a time."""

    def __init__(
        self, log: MetadataLog, clock: Clock, loop: asyncio.AbstractEventLoop, written: Callable[[SnapshotId], None]
    ) -> None:
        self._log = log
        self._clock = clock
        self._loop = loop
        self._written = written
        self._last_ms = clock.monotonic_ms()
        self.bytes_since = 0
        #: of the last batch that was counted
        self.last_timestamp_ms = 0
        self.task: asyncio.Task[None] | None = None

    def due(self) -> bool:
        """By size, or by time when there is anything new."""
        if self.task is not None or not self.bytes_since:
            return False
        config = self._log.config
        if self.bytes_since >= config.snapshot_interval_bytes:
            return True
        waited_ms = self._clock.monotonic_ms() - self._last_ms
        return 0 < config.snapshot_interval_ms <= waited_ms

    def count(self, data: bytes | bytearray) -> None:
        """More batches that the next snapshot will have to stand for."""
        self.bytes_since += len(data)
        for _, header in batches.iter_headers(memoryview(data)):
            self.last_timestamp_ms = header.max_timestamp

    def start(
        self,
        image: ClusterImage,
        membership: Membership,
        committed: Callable[[int], Awaitable[None]],
        workers: Workers,
    ) -> None:
        """Writes a snapshot of `image` as it is now, once `committed` says that what it contains is."""
        if image.pending is not None:
            return  # half a metadata transaction is no state to start from
        end_offset = image.offset + 1
        latest = self._log.latest_snapshot
        if end_offset <= (0 if latest is None else latest.offset):
            return
        covered, self.bytes_since = self.bytes_since, 0
        self._last_ms = self._clock.monotonic_ms()
        snapshot_id = SnapshotId(end_offset, image.epoch)
        version = membership.versions.at(end_offset - 1) or 0
        voters = membership.voter_sets.at(end_offset - 1)
        content = snapshot_batches(
            image_records(image.freeze()),
            epoch=snapshot_id.epoch,
            last_contained_timestamp_ms=self.last_timestamp_ms,
            now_ms=self._clock.now_ms(),
            kraft_version=version,
            voters=voters.to_record() if version >= 1 and voters is not None else None,
        )
        writing = self._write(snapshot_id, content, covered, committed(end_offset - 1), workers)
        self.task = self._loop.create_task(writing)

    async def _write(
        self,
        snapshot_id: SnapshotId,
        content: Iterator[bytearray],
        covered: int,
        committed: Awaitable[None],
        workers: Workers,
    ) -> None:
        try:
            try:
                await committed
            except KafkaError:
                # The lead was lost first: what the image held beyond the committed records may never be. As a follower
                # this node writes the next one.
                self.bytes_since += covered
                return
            path = self._log.snapshot_path(snapshot_id)
            size = await workers.offload(write_snapshot, self._log.files, path, content)
            self._log.snapshot_written(snapshot_id)
            logger.info("wrote metadata snapshot %s, %d bytes", snapshot_id.filename, size)
            self._log.clean(self._clock.now_ms())
            self._written(snapshot_id)
        except (OSError, KafkaError) as error:
            # The log is whole without it; the next one may succeed.
            logger.error("could not write metadata snapshot %s: %s", snapshot_id.filename, error)
        finally:
            self.task = None
