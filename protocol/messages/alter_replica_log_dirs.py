"""Move replicas between the log directories of one broker."""

from __future__ import annotations

from pylogd.protocol.schema import Message, Struct
from pylogd.protocol.wire import Int16, Int32


class AlterReplicaLogDirsRequest(Message, api_key=34, versions=(1, 2), flexible=2):
    dirs: list[AlterReplicaLogDir] = []


class AlterReplicaLogDir(Struct):
    path: str = ""
    topics: list[AlterReplicaLogDirTopic] = []


class AlterReplicaLogDirTopic(Struct):
    name: str = ""
    partitions: list[Int32] = []


class AlterReplicaLogDirsResponse(Message, api_key=34, versions=(1, 2), flexible=2):
    throttle_time_ms: Int32 = 0
    results: list[AlterReplicaLogDirTopicResult] = []


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: str = ""
    partitions: list[AlterReplicaLogDirPartitionResult] = []


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
