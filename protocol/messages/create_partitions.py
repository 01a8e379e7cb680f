"""Raise the number of partitions of topics.

3 may answer THROTTLING_QUOTA_EXCEEDED.
"""

from __future__ import annotations

from pylogd.protocol.schema import Message, Struct
from pylogd.protocol.wire import Int16, Int32


class CreatePartitionsRequest(Message, api_key=37, versions=(0, 3), flexible=2):
    topics: list[CreatePartitionsTopic] = []
    timeout_ms: Int32 = 0
    validate_only: bool = False


class CreatePartitionsTopic(Struct):
    name: str = ""
    count: Int32 = 0
    assignments: list[CreatePartitionsAssignment] | None = []


class CreatePartitionsAssignment(Struct):
    broker_ids: list[Int32] = []


class CreatePartitionsResponse(Message, api_key=37, versions=(0, 3), flexible=2):
    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsTopicResult] = []


class CreatePartitionsTopicResult(Struct):
    name: str = ""
    error_code: Int16 = 0
    error_message: str | None = None
