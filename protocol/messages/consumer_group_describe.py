"""State and members of groups of the new consumer protocol."""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import DEFAULT, Message, Struct, ignorable, since
from pylogd.protocol.uuids import ZERO
from pylogd.protocol.wire import Int8, Int16, Int32, Uuid


class ConsumerGroupDescribeRequest(Message, api_key=69, versions=(0, 1), flexible=0):
    group_ids: list[str] = []
    include_authorized_operations: bool = False


class ConsumerGroupDescribeResponse(Message, api_key=69, versions=(0, 1), flexible=0):
    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup] = []


class DescribedGroup(Struct):
    error_code: Int16 = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: str = ""
    members: list[Member] = []
    authorized_operations: Int32 = -0x80000000


class Member(Struct):
    member_id: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    member_epoch: Int32 = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = []
    subscribed_topic_regex: str | None = None
    assignment: Assignment = DEFAULT
    target_assignment: Assignment = DEFAULT
    member_type: Annotated[Int8, since(1), ignorable] = -1


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = []


class TopicPartitions(Struct):
    topic_id: Uuid = ZERO
    topic_name: str = ""
    partitions: list[Int32] = []
