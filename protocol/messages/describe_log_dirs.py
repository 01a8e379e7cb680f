"""Log directories of a broker, and the size and lag of the replicas in them."""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, Struct, ignorable, since
from pylogd.protocol.wire import Int16, Int32, Int64


class DescribeLogDirsRequest(Message, api_key=35, versions=(1, 5), flexible=2):
    topics: list[DescribableLogDirTopic] | None = []


class DescribableLogDirTopic(Struct):
    topic: str = ""
    partitions: list[Int32] = []


class DescribeLogDirsResponse(Message, api_key=35, versions=(1, 5), flexible=2):
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(3), ignorable] = 0
    results: list[DescribeLogDirsResult] = []


class DescribeLogDirsResult(Struct):
    error_code: Int16 = 0
    log_dir: str = ""
    topics: list[DescribeLogDirsTopic] = []
    total_bytes: Annotated[Int64, since(4), ignorable] = -1
    usable_bytes: Annotated[Int64, since(4), ignorable] = -1
    is_cordoned: Annotated[bool, since(5), ignorable] = False


class DescribeLogDirsTopic(Struct):
    name: str = ""
    partitions: list[DescribeLogDirsPartition] = []


class DescribeLogDirsPartition(Struct):
    partition_index: Int32 = 0
    partition_size: Int64 = 0
    offset_lag: Int64 = 0
    is_future_key: bool = False
