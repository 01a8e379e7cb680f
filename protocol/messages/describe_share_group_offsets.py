"""Start offsets and lag of share groups."""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, Struct, ignorable, since
from pylogd.protocol.uuids import ZERO
from pylogd.protocol.wire import Int16, Int32, Int64, Uuid


class DescribeShareGroupOffsetsRequest(Message, api_key=90, versions=(0, 1), flexible=0):
    groups: list[DescribeShareGroupOffsetsRequestGroup] = []


class DescribeShareGroupOffsetsRequestGroup(Struct):
    group_id: str = ""
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = []


class DescribeShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = ""
    partitions: list[Int32] = []


class DescribeShareGroupOffsetsResponse(Message, api_key=90, versions=(0, 1), flexible=0):
    throttle_time_ms: Int32 = 0
    groups: list[DescribeShareGroupOffsetsResponseGroup] = []


class DescribeShareGroupOffsetsResponseGroup(Struct):
    group_id: str = ""
    topics: list[DescribeShareGroupOffsetsResponseTopic] = []
    error_code: Int16 = 0
    error_message: str | None = None


class DescribeShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = ""
    topic_id: Uuid = ZERO
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = []


class DescribeShareGroupOffsetsResponsePartition(Struct):
    partition_index: Int32 = 0
    start_offset: Int64 = 0
    leader_epoch: Int32 = 0
    lag: Annotated[Int64, since(1), ignorable] = -1
    error_code: Int16 = 0
    error_message: str | None = None
