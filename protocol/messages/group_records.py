"""Records of `__consumer_offsets`: state of classic, consumer, share and streams groups.

A key or value is preceded by an int16: in a key it is the record type (`API_KEY`), in a value the version. A null
value deletes the key. Types 0 and 1 are both offset commits: Kafka writes 1 and still reads 0.
Structs that share a name in Kafka but differ are prefixed here: Consumer, Share or Streams, and Current or Target.
"""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import DEFAULT, Message, Struct, ignorable, since, tagged, until
from pylogd.protocol.uuids import ZERO
from pylogd.protocol.wire import Int8, Int16, Int32, Int64, UInt16, Uuid


class LegacyOffsetCommitKey(Message, api_key=0, versions=(0, 0)):
    group: str = ""
    topic: str = ""
    partition: Int32 = 0


class LegacyOffsetCommitValue(Message, api_key=0, versions=(0, 0)):
    offset: Int64 = 0
    metadata: str = ""
    commit_timestamp: Int64 = 0


class OffsetCommitKey(Message, api_key=1, versions=(0, 0)):
    group: str = ""
    topic: str = ""
    partition: Int32 = 0


class OffsetCommitValue(Message, api_key=1, versions=(0, 4), flexible=4):
    offset: Int64 = 0
    leader_epoch: Annotated[Int32, since(3), ignorable] = -1
    metadata: str = ""
    commit_timestamp: Int64 = 0
    expire_timestamp: Annotated[Int64, since(1), until(1), ignorable] = -1
    topic_id: Annotated[Uuid, tagged(0, since=4), ignorable] = ZERO


class GroupMetadataKey(Message, api_key=2, versions=(0, 0)):
    group: str = ""


class GroupMetadataValue(Message, api_key=2, versions=(0, 4), flexible=4):
    protocol_type: str = ""
    generation: Int32 = 0
    protocol: str | None = ""
    leader: str | None = ""
    current_state_timestamp: Annotated[Int64, since(2), ignorable] = -1
    members: list[MemberMetadata] = []


class MemberMetadata(Struct):
    member_id: str = ""
    group_instance_id: Annotated[str | None, since(3), ignorable] = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout: Annotated[Int32, since(1), ignorable] = -1
    session_timeout: Int32 = 0
    subscription: bytes = b""
    assignment: bytes = b""


class ConsumerGroupMetadataKey(Message, api_key=3, versions=(0, 0)):
    group_id: str = ""


class ConsumerGroupMetadataValue(Message, api_key=3, versions=(0, 0), flexible=0):
    epoch: Int32 = 0
    metadata_hash: Annotated[Int64, tagged(0, since=0)] = 0


class ConsumerGroupPartitionMetadataKey(Message, api_key=4, versions=(0, 0)):
    group_id: str = ""


class ConsumerGroupPartitionMetadataValue(Message, api_key=4, versions=(0, 0), flexible=0):
    topics: list[TopicMetadata] = []


class TopicMetadata(Struct):
    topic_id: Uuid = ZERO
    topic_name: str = ""
    num_partitions: Int32 = 0
    partition_metadata: list[PartitionMetadata] = []


class PartitionMetadata(Struct):
    partition: Int32 = 0
    racks: list[str] = []


class ConsumerGroupMemberMetadataKey(Message, api_key=5, versions=(0, 0)):
    group_id: str = ""
    member_id: str = ""


class ConsumerGroupMemberMetadataValue(Message, api_key=5, versions=(0, 0), flexible=0):
    instance_id: str | None = ""
    rack_id: str | None = ""
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = []
    subscribed_topic_regex: str | None = ""
    rebalance_timeout_ms: Int32 = -1
    server_assignor: str | None = ""
    classic_member_metadata: Annotated[ClassicMemberMetadata | None, tagged(0, since=0)] = DEFAULT


class ClassicMemberMetadata(Struct):
    session_timeout_ms: Int32 = 0
    supported_protocols: list[ClassicProtocol] = []


class ClassicProtocol(Struct):
    name: str = ""
    metadata: bytes = b""


class ConsumerGroupTargetAssignmentMetadataKey(Message, api_key=6, versions=(0, 0)):
    group_id: str = ""


class ConsumerGroupTargetAssignmentMetadataValue(Message, api_key=6, versions=(0, 0), flexible=0):
    assignment_epoch: Int32 = 0
    assignment_timestamp: Annotated[Int64, tagged(0, since=0)] = 0


class ConsumerGroupTargetAssignmentMemberKey(Message, api_key=7, versions=(0, 0)):
    group_id: str = ""
    member_id: str = ""


class ConsumerGroupTargetAssignmentMemberValue(Message, api_key=7, versions=(0, 0), flexible=0):
    topic_partitions: list[TopicPartition] = []


class TopicPartition(Struct):
    topic_id: Uuid = ZERO
    partitions: list[Int32] = []


class ConsumerGroupCurrentMemberAssignmentKey(Message, api_key=8, versions=(0, 0)):
    group_id: str = ""
    member_id: str = ""


class ConsumerGroupCurrentMemberAssignmentValue(Message, api_key=8, versions=(0, 0), flexible=0):
    member_epoch: Int32 = 0
    previous_member_epoch: Int32 = 0
    state: Int8 = 0
    assigned_partitions: list[ConsumerTopicPartitions] = []
    partitions_pending_revocation: list[ConsumerTopicPartitions] = []


class ConsumerTopicPartitions(Struct):
    topic_id: Uuid = ZERO
    partitions: list[Int32] = []
    assignment_epochs: Annotated[list[Int32] | None, tagged(0, since=0)] = []


class ShareGroupMemberMetadataKey(Message, api_key=10, versions=(0, 0)):
    group_id: str = ""
    member_id: str = ""


class ShareGroupMemberMetadataValue(Message, api_key=10, versions=(0, 0), flexible=0):
    rack_id: str | None = ""
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = []


class ShareGroupMetadataKey(Message, api_key=11, versions=(0, 0)):
    group_id: str = ""


class ShareGroupMetadataValue(Message, api_key=11, versions=(0, 0), flexible=0):
    epoch: Int32 = 0
    metadata_hash: Int64 = 0


class ShareGroupTargetAssignmentMetadataKey(Message, api_key=12, versions=(0, 0)):
    group_id: str = ""


class ShareGroupTargetAssignmentMetadataValue(Message, api_key=12, versions=(0, 0), flexible=0):
    assignment_epoch: Int32 = 0
    assignment_timestamp: Annotated[Int64, tagged(0, since=0)] = 0


class ShareGroupTargetAssignmentMemberKey(Message, api_key=13, versions=(0, 0)):
    group_id: str = ""
    member_id: str = ""


class ShareGroupTargetAssignmentMemberValue(Message, api_key=13, versions=(0, 0), flexible=0):
    topic_partitions: list[TopicPartition] = []


class ShareGroupCurrentMemberAssignmentKey(Message, api_key=14, versions=(0, 0)):
    group_id: str = ""
    member_id: str = ""


class ShareGroupCurrentMemberAssignmentValue(Message, api_key=14, versions=(0, 0), flexible=0):
    member_epoch: Int32 = 0
    previous_member_epoch: Int32 = 0
    state: Int8 = 0
    assigned_partitions: list[ShareTopicPartitions] = []


class ShareTopicPartitions(Struct):
    topic_id: Uuid = ZERO
    partitions: list[Int32] = []


class ShareGroupStatePartitionMetadataKey(Message, api_key=15, versions=(0, 0)):
    group_id: str = ""


class ShareGroupStatePartitionMetadataValue(Message, api_key=15, versions=(0, 0), flexible=0):
    initializing_topics: list[TopicPartitionsInfo] = []
    initialized_topics: list[TopicPartitionsInfo] = []
    deleting_topics: list[ShareTopicInfo] = []


class TopicPartitionsInfo(Struct):
    topic_id: Uuid = ZERO
    topic_name: str = ""
    partitions: list[Int32] = []


class ShareTopicInfo(Struct):
    topic_id: Uuid = ZERO
    topic_name: str = ""


class ConsumerGroupRegularExpressionKey(Message, api_key=16, versions=(0, 0)):
    group_id: str = ""
    regular_expression: str = ""


class ConsumerGroupRegularExpressionValue(Message, api_key=16, versions=(0, 0), flexible=0):
    topics: list[str] = []
    version: Int64 = 0
    timestamp: Int64 = 0


class StreamsGroupMetadataKey(Message, api_key=17, versions=(0, 0)):
    group_id: str = ""


class StreamsGroupMetadataValue(Message, api_key=17, versions=(0, 0), flexible=0):
    epoch: Int32 = 0
    metadata_hash: Int64 = 0
    validated_topology_epoch: Annotated[Int32, tagged(0, since=0)] = -1
    last_assignment_configs: Annotated[list[LastAssignmentConfig] | None, tagged(1, since=0)] = []


class LastAssignmentConfig(Struct):
    key: str = ""
    value: str = ""


class StreamsGroupMemberMetadataKey(Message, api_key=19, versions=(0, 0)):
    group_id: str = ""
    member_id: str = ""


class StreamsGroupMemberMetadataValue(Message, api_key=19, versions=(0, 0), flexible=0):
    instance_id: str | None = ""
    rack_id: str | None = ""
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: Int32 = -1
    topology_epoch: Int32 = 0
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue] = []


class Endpoint(Struct):
    host: str = ""
    port: UInt16 = 0


class KeyValue(Struct):
    key: str = ""
    value: str = ""


class StreamsGroupTargetAssignmentMetadataKey(Message, api_key=20, versions=(0, 0)):
    group_id: str = ""


class StreamsGroupTargetAssignmentMetadataValue(Message, api_key=20, versions=(0, 0), flexible=0):
    assignment_epoch: Int32 = 0
    assignment_timestamp: Annotated[Int64, tagged(0, since=0)] = 0


class StreamsGroupTargetAssignmentMemberKey(Message, api_key=21, versions=(0, 0)):
    group_id: str = ""
    member_id: str = ""


class StreamsGroupTargetAssignmentMemberValue(Message, api_key=21, versions=(0, 0), flexible=0):
    active_tasks: list[TargetTaskIds] = []
    standby_tasks: list[TargetTaskIds] = []
    warmup_tasks: list[TargetTaskIds] = []


class TargetTaskIds(Struct):
    subtopology_id: str = ""
    partitions: list[Int32] = []


class StreamsGroupCurrentMemberAssignmentKey(Message, api_key=22, versions=(0, 0)):
    group_id: str = ""
    member_id: str = ""


class StreamsGroupCurrentMemberAssignmentValue(Message, api_key=22, versions=(0, 0), flexible=0):
    member_epoch: Int32 = 0
    previous_member_epoch: Int32 = 0
    state: Int8 = 0
    active_tasks: list[CurrentTaskIds] = []
    standby_tasks: list[CurrentTaskIds] = []
    warmup_tasks: list[CurrentTaskIds] = []
    active_tasks_pending_revocation: list[CurrentTaskIds] = []
    standby_tasks_pending_revocation: list[CurrentTaskIds] = []
    warmup_tasks_pending_revocation: list[CurrentTaskIds] = []


class CurrentTaskIds(Struct):
    subtopology_id: str = ""
    partitions: list[Int32] = []
    assignment_epochs: Annotated[list[Int32] | None, tagged(0, since=0)] = []


class StreamsGroupTopologyKey(Message, api_key=23, versions=(0, 0)):
    group_id: str = ""


class StreamsGroupTopologyValue(Message, api_key=23, versions=(0, 0), flexible=0):
    epoch: Int32 = 0
    subtopologies: list[Subtopology] = []


class Subtopology(Struct):
    subtopology_id: str = ""
    source_topics: list[str] = []
    source_topic_regex: list[str] = []
    state_changelog_topics: list[StreamsTopicInfo] = []
    repartition_sink_topics: list[str] = []
    repartition_source_topics: list[StreamsTopicInfo] = []
    copartition_groups: list[CopartitionGroup] = []


class StreamsTopicInfo(Struct):
    name: str = ""
    partitions: Int32 = 0
    replication_factor: Int16 = 0
    topic_configs: list[TopicConfig] = []


class TopicConfig(Struct):
    key: str = ""
    value: str = ""


class CopartitionGroup(Struct):
    source_topics: list[Int16] = []
    source_topic_regex: list[Int16] = []
    repartition_source_topics: list[Int16] = []
