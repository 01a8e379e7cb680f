"""Records of `__remote_log_metadata`, the catalogue of tiered segments."""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import DEFAULT, Message, Struct, tagged
from pylogd.protocol.uuids import ZERO
from pylogd.protocol.wire import Int8, Int32, Int64, Uuid


class RemoteLogSegmentMetadataRecord(Message, api_key=0, versions=(0, 0), flexible=0):
    remote_log_segment_id: RemoteLogSegmentIdEntry = DEFAULT
    start_offset: Int64 = 0
    end_offset: Int64 = 0
    broker_id: Int32 = 0
    max_timestamp_ms: Int64 = 0
    event_timestamp_ms: Int64 = 0
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = []
    segment_size_in_bytes: Int32 = 0
    custom_metadata: bytes | None = None
    remote_log_segment_state: Int8 = 0
    txn_index_empty: Annotated[bool, tagged(0, since=0)] = False


class RemoteLogSegmentIdEntry(Struct):
    topic_id_partition: TopicIdPartitionEntry = DEFAULT
    id: Uuid = ZERO


class TopicIdPartitionEntry(Struct):
    name: str = ""
    id: Uuid = ZERO
    partition: Int32 = 0


class SegmentLeaderEpochEntry(Struct):
    leader_epoch: Int32 = 0
    offset: Int64 = 0


class RemoteLogSegmentMetadataUpdateRecord(Message, api_key=1, versions=(0, 0), flexible=0):
    remote_log_segment_id: RemoteLogSegmentIdEntry = DEFAULT
    broker_id: Int32 = 0
    event_timestamp_ms: Int64 = 0
    custom_metadata: bytes | None = None
    remote_log_segment_state: Int8 = 0


class RemotePartitionDeleteMetadataRecord(Message, api_key=2, versions=(0, 0), flexible=0):
    topic_id_partition: TopicIdPartitionEntry = DEFAULT
    broker_id: Int32 = 0
    event_timestamp_ms: Int64 = 0
    remote_partition_delete_state: Int8 = 0


class RemoteLogSegmentMetadataSnapshotRecord(Message, api_key=3, versions=(0, 0), flexible=0):
    segment_id: Uuid = ZERO
    start_offset: Int64 = 0
    end_offset: Int64 = 0
    broker_id: Int32 = 0
    max_timestamp_ms: Int64 = 0
    event_timestamp_ms: Int64 = 0
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = []
    segment_size_in_bytes: Int32 = 0
    custom_metadata: bytes | None = None
    remote_log_segment_state: Int8 = 0
    txn_index_empty: Annotated[bool, tagged(0, since=0)] = False
