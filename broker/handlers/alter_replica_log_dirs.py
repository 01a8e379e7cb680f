"""AlterReplicaLogDirs (key 34): move replicas between the log directories of this broker.

1  throttling after the response
2  flexible

All of Kafka's checks are made, and a replica that is in the wanted directory already is answered without an error.
Moving one is not implemented: the answer is UNSUPPORTED_VERSION, and nothing changes.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pylogd.broker.network.context import RequestContext
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

if TYPE_CHECKING:
    from pylogd.broker.services import Services

logger = logging.getLogger(__name__)

# A replica on its way has a directory TOPIC-PARTITION.<32 digits>-future.
_FUTURE_NAME_CHARS_MAX = 255
_FUTURE_SUFFIX_CHARS = len(".") + 32 + len("-future")


def handle(ctx: RequestContext, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    # A partition named twice goes where it was sent last, as in Kafka.
    wanted = {
        (topic.name, index): target.path
        for target in request.dirs
        for topic in target.topics
        for index in topic.partitions
    }
    topics: dict[str, AlterReplicaLogDirTopicResult] = {}
    for (name, index), path in wanted.items():
        result = AlterReplicaLogDirPartitionResult(partition_index=index)
        try:
            _move(ctx.services, name, index, path)
        except KafkaError as failure:
            logger.warning("replica %s-%d is not moved to %s: %s", name, index, path, failure)
            result.error_code = int(failure.code)
        topics.setdefault(name, AlterReplicaLogDirTopicResult(topic_name=name)).partitions.append(result)
    return AlterReplicaLogDirsResponse(results=list(topics.values()))


def _move(services: Services, name: str, index: int, path: str) -> None:
    if len(f"{name}-{index}") + _FUTURE_SUFFIX_CHARS > _FUTURE_NAME_CHARS_MAX:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "the topic name is too long for a replica that moves")
    target = next((directory for directory in services.logs.directories if directory.path == path), None)
    if target is None:
        raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, "the directory is not in log.dirs")
    if not target.online:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the directory is offline")
    if path in services.config.cordoned_log_dirs:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "the directory is cordoned")
    if services.logs.get(name, index) is None:
        code = services.leaders.missing_code(name, index)
        # This API kept the older error for it.
        not_here = code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE if not_here else code, "this broker has no such replica")
    if (name, index) not in target.partitions:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "moving replicas between log directories is not there yet")
