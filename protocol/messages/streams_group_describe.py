"""Topology, state and members of streams groups."""

from __future__ import annotations

from pylogd.protocol.schema import DEFAULT, Message, Struct
from pylogd.protocol.wire import Int16, Int32, Int64, UInt16


class StreamsGroupDescribeRequest(Message, api_key=89, versions=(0, 0), flexible=0):
    group_ids: list[str] = []
    include_authorized_operations: bool = False


class StreamsGroupDescribeResponse(Message, api_key=89, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup] = []


class DescribedGroup(Struct):
    error_code: Int16 = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    topology: Topology | None = None
    members: list[Member] = []
    authorized_operations: Int32 = -0x80000000


class Topology(Struct):
    epoch: Int32 = 0
    subtopologies: list[Subtopology] | None = None


class Subtopology(Struct):
    subtopology_id: str = ""
    source_topics: list[str] = []
    repartition_sink_topics: list[str] = []
    state_changelog_topics: list[TopicInfo] = []
    repartition_source_topics: list[TopicInfo] = []


class TopicInfo(Struct):
    name: str = ""
    partitions: Int32 = 0
    replication_factor: Int16 = 0
    topic_configs: list[KeyValue] = []


class KeyValue(Struct):
    key: str = ""
    value: str = ""


class Member(Struct):
    member_id: str = ""
    member_epoch: Int32 = 0
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topology_epoch: Int32 = 0
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue] = []
    task_offsets: list[TaskOffset] = []
    task_end_offsets: list[TaskOffset] = []
    assignment: Assignment = DEFAULT
    target_assignment: Assignment = DEFAULT
    is_classic: bool = False


class Endpoint(Struct):
    host: str = ""
    port: UInt16 = 0


class TaskOffset(Struct):
    subtopology_id: str = ""
    partition: Int32 = 0
    offset: Int64 = 0


class Assignment(Struct):
    active_tasks: list[TaskIds] = []
    standby_tasks: list[TaskIds] = []
    warmup_tasks: list[TaskIds] = []


class TaskIds(Struct):
    subtopology_id: str = ""
    partitions: list[Int32] = []
