"""Recovery of a whole log directory after an unclean stop: several logs at a time in worker threads, with progress.

What was recovered is not synced here: thousands of fsyncs would keep the broker from serving. Recovery points stay
where they were until the next flush, and logs that must be flushed before they acknowledge are flushed in the
background.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from pylogd.storage.directories.directory import LogDirectory, TopicPartition
from pylogd.storage.partition_metadata import MalformedMetadata

if TYPE_CHECKING:
    from pylogd.storage.directories.log_manager import LogManager

logger = logging.getLogger(__name__)

_PROGRESS_MS = 5_000


async def recover_directory(manager: LogManager, directory: LogDirectory) -> None:
    """Opens every log of a directory that was not stopped cleanly."""
    keys = [key for key in directory.partitions if manager.peek(key) is None]
    if not keys:
        return
    logger.info("recovering %d logs in %s, which was not stopped cleanly", len(keys), directory.path)
    started_ms = manager.clock.monotonic_ms()
    waiting = iter(keys)
    remaining: dict[TopicPartition, int] = {}
    done = 0

    async def work() -> None:
        nonlocal done
        for key in waiting:
            if not directory.online:
                return

            def progress(segments: int, key: TopicPartition = key) -> None:
                remaining[key] = segments

            try:
                opening = manager.workers.offload(manager.open_log, key, directory, None, None, progress)
                log = manager.adopt(key, await opening)
                if log.log_end_offset - log.recovery_point >= log.config.flush_messages:
                    manager.flusher.request(log)
            except OSError as error:
                manager.directory_failed(directory, f"recovering {key[0]}-{key[1]}: {error}")
                return
            except MalformedMetadata as error:
                logger.error("%s-%d stays closed: %s", *key, error)
            remaining.pop(key, None)
            done += 1

    async def report() -> None:
        while True:
            await asyncio.sleep(_PROGRESS_MS / 1000)
            logger.info(
                "recovered %d of %d logs in %s, %d segments of %d logs under way",
                done,
                len(keys),
                directory.path,
                sum(remaining.values()),
                len(remaining),
            )

    reporter = manager.loop.create_task(report())
    try:
        await asyncio.gather(*(work() for _ in range(manager.settings.recovery_threads)))
    finally:
        reporter.cancel()
    logger.info("recovered %d logs in %s in %d ms", done, directory.path, manager.clock.monotonic_ms() - started_ms)
