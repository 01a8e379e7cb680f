"""When a snapshot of the metadata is due, and writing it beside the log while the controller goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from pylogd.controller.metadata_log import MetadataLog
from pylogd.metadata.image import ClusterImage
from pylogd.metadata.snapshot import SnapshotId, image_records, snapshot_batches, write_snapshot
from pylogd.protocol.errors import KafkaError
from pylogd.runtime.clock import Clock
from pylogd.runtime.workers import Workers

logger = logging.getLogger(__name__)


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

    def start(
        self,
        image: ClusterImage,
        snapshot_id: SnapshotId,
        committed: Awaitable[None],
        workers: Workers,
        *,
        timestamp_ms: int,
        kraft_version: int,
        voters: Any,
    ) -> None:
        """Writes `image` as it is now, once `committed` says that what it contains is."""
        covered, self.bytes_since = self.bytes_since, 0
        self._last_ms = self._clock.monotonic_ms()
        batches = snapshot_batches(
            image_records(image.freeze()),
            epoch=snapshot_id.epoch,
            last_contained_timestamp_ms=timestamp_ms,
            now_ms=self._clock.now_ms(),
            kraft_version=kraft_version,
            voters=voters,
        )
        self.task = self._loop.create_task(self._write(snapshot_id, batches, covered, committed, workers))

    async def _write(
        self, snapshot_id: SnapshotId, batches: Any, covered: int, committed: Awaitable[None], workers: Workers
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
            size = await workers.offload(write_snapshot, self._log.files, path, batches)
            self._log.snapshot_written(snapshot_id)
            logger.info("wrote metadata snapshot %s, %d bytes", snapshot_id.filename, size)
            self._log.clean(self._clock.now_ms())
            self._written(snapshot_id)
        except (OSError, KafkaError) as error:
            # The log is whole without it; the next one may succeed.
            logger.error("could not write metadata snapshot %s: %s", snapshot_id.filename, error)
        finally:
            self.task = None
