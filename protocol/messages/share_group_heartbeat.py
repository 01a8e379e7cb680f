"""A member of a share group joins, stays or leaves (KIP-932). Version 0 was early access and is gone."""

from __future__ import annotations

from pylogd.protocol.schema import Message, Struct
from pylogd.protocol.uuids import ZERO
from pylogd.protocol.wire import Int16, Int32, Uuid


class ShareGroupHeartbeatRequest(Message, api_key=76, versions=(1, 1), flexible=0):
    group_id: str = ""
    member_id: str = ""
    member_epoch: Int32 = 0
    rack_id: str | None = None
    subscribed_topic_names: list[str] | None = None


class ShareGroupHeartbeatResponse(Message, api_key=76, versions=(1, 1), flexible=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Assignment | None = None


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = []


class TopicPartitions(Struct):
    topic_id: Uuid = ZERO
    partitions: list[Int32] = []
