"""The one request of the new consumer protocol: join, keep, change and leave (KIP-848).

1: the member makes up its own id (KIP-1082).
"""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, Struct, since
from pylogd.protocol.uuids import ZERO
from pylogd.protocol.wire import Int16, Int32, Uuid


class ConsumerGroupHeartbeatRequest(Message, api_key=68, versions=(0, 1), flexible=0):
    group_id: str = ""
    member_id: str = ""
    member_epoch: Int32 = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: list[str] | None = None
    subscribed_topic_regex: Annotated[str | None, since(1)] = None
    server_assignor: str | None = None
    topic_partitions: list[TopicPartitions] | None = None


class TopicPartitions(Struct):
    topic_id: Uuid = ZERO
    partitions: list[Int32] = []


class ConsumerGroupHeartbeatResponse(Message, api_key=68, versions=(0, 1), flexible=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Assignment | None = None


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = []
