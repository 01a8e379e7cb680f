"""DescribeLogDirs (key 35): log directories, the replicas in them and the space of their disks.

1  throttling after the response
2  flexible
3  a top-level error code
4  total and usable bytes of the volume (KIP-827)
5  whether the directory is cordoned (KIP-1066)

To be measured, a log that was not used since the start is opened, which reads files. So partitions are described in
slices, between which the event loop goes on.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from pylogd.broker.network.context import RequestContext
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from pylogd.broker.services import Services
    from pylogd.runtime.files import FileSystem
    from pylogd.storage.directories.directory import LogDirectory
    from pylogd.storage.directories.log_manager import LogManager

logger = logging.getLogger(__name__)

_CORDONED_SINCE = 30
_SLICE = 200


async def handle(ctx: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    wanted: set[tuple[str, int]] | None = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    results = [await _describe(ctx.services, directory, wanted) for directory in ctx.services.logs.directories]
    return DescribeLogDirsResponse(results=results)


async def _describe(
    services: Services, directory: LogDirectory, wanted: set[tuple[str, int]] | None
) -> DescribeLogDirsResult:
    result = DescribeLogDirsResult(log_dir=directory.path)
    try:
        if not directory.online:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Log directory {directory.path} is offline")
        result.total_bytes, result.usable_bytes = await services.workers.offload(
            _space, services.logs.files, directory.path
        )
        result.topics = await _topics(services.logs, directory, wanted)
        if services.image.metadata_version >= _CORDONED_SINCE:
            result.is_cordoned = directory.path in services.config.cordoned_log_dirs
    except (KafkaError, OSError) as failure:
        logger.warning("log directory %s cannot be described: %s", directory.path, failure)
        result = DescribeLogDirsResult(log_dir=directory.path, error_code=int(ErrorCode.KAFKA_STORAGE_ERROR))
    return result


def _space(files: FileSystem, path: str) -> tuple[int, int]:
    return files.total_bytes(path), files.free_bytes(path)


async def _topics(
    logs: LogManager, directory: LogDirectory, wanted: set[tuple[str, int]] | None
) -> list[DescribeLogDirsTopic]:
    topics: dict[str, DescribeLogDirsTopic] = {}
    keys = [key for key in directory.partitions if wanted is None or key in wanted]
    for count, (name, index) in enumerate(keys):
        if count and count % _SLICE == 0:
            await asyncio.sleep(0)
        # Deleted meanwhile, or moved: not an error of the directory.
        log = logs.get(name, index) if (name, index) in directory.partitions else None
        if log is None:
            continue
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = DescribeLogDirsTopic(name=name)
        lag = max(log.high_watermark - log.log_end_offset, 0)
        topic.partitions.append(
            DescribeLogDirsPartition(partition_index=index, partition_size=log.size, offset_lag=lag)
        )
    return list(topics.values())
