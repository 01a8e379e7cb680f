"""The one request of the streams protocol: topology, tasks and membership (KIP-1071)."""

from __future__ import annotations

from pylogd.protocol.schema import DEFAULT, Message, Struct
from pylogd.protocol.wire import Int8, Int16, Int32, Int64, UInt16


class StreamsGroupHeartbeatRequest(Message, api_key=88, versions=(0, 0), flexible=0):
    group_id: str = ""
    member_id: str = ""
    member_epoch: Int32 = 0
    endpoint_information_epoch: Int32 = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: Int32 = -1
    topology: Topology | None = None
    active_tasks: list[TaskIds] | None = None
    standby_tasks: list[TaskIds] | None = None
    warmup_tasks: list[TaskIds] | None = None
    process_id: str | None = None
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue] | None = None
    task_offsets: list[TaskOffset] | None = None
    task_end_offsets: list[TaskOffset] | None = None
    shutdown_application: bool = False


class Topology(Struct):
    epoch: Int32 = 0
    subtopologies: list[Subtopology] = []


class Subtopology(Struct):
    subtopology_id: str = ""
    source_topics: list[str] = []
    source_topic_regex: list[str] = []
    state_changelog_topics: list[TopicInfo] = []
    repartition_sink_topics: list[str] = []
    repartition_source_topics: list[TopicInfo] = []
    copartition_groups: list[CopartitionGroup] = []


class TopicInfo(Struct):
    name: str = ""
    partitions: Int32 = 0
    replication_factor: Int16 = 0
    topic_configs: list[KeyValue] = []


class CopartitionGroup(Struct):
    source_topics: list[Int16] = []
    source_topic_regex: list[Int16] = []
    repartition_source_topics: list[Int16] = []


class TaskIds(Struct):
    subtopology_id: str = ""
    partitions: list[Int32] = []


class Endpoint(Struct):
    host: str = ""
    port: UInt16 = 0


class KeyValue(Struct):
    key: str = ""
    value: str = ""


class TaskOffset(Struct):
    subtopology_id: str = ""
    partition: Int32 = 0
    offset: Int64 = 0


class StreamsGroupHeartbeatResponse(Message, api_key=88, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    member_id: str = ""
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    acceptable_recovery_lag: Int32 = 0
    task_offset_interval_ms: Int32 = 0
    status: list[Status] | None = []
    active_tasks: list[TaskIds] | None = None
    standby_tasks: list[TaskIds] | None = None
    warmup_tasks: list[TaskIds] | None = None
    endpoint_information_epoch: Int32 = 0
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = None


class Status(Struct):
    status_code: Int8 = 0
    status_detail: str = ""


class EndpointToPartitions(Struct):
    user_endpoint: Endpoint = DEFAULT
    active_partitions: list[TopicPartition] = []
    standby_partitions: list[TopicPartition] = []


class TopicPartition(Struct):
    topic: str = ""
    partitions: list[Int32] = []
