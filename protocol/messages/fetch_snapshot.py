"""KRaft: read a piece of a metadata snapshot.

Request and response differ in what they call PartitionSnapshot and TopicSnapshot: here the names are prefixed with
Request and Response.
"""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import DEFAULT, Message, Struct, ignorable, tagged
from pylogd.protocol.uuids import ZERO
from pylogd.protocol.wire import Int16, Int32, Int64, Records, UInt16, Uuid


class FetchSnapshotRequest(Message, api_key=59, versions=(0, 1), flexible=0):
    cluster_id: Annotated[str | None, tagged(0, since=0)] = None
    replica_id: Int32 = -1
    max_bytes: Int32 = 0x7FFFFFFF
    topics: list[RequestTopicSnapshot] = []


class RequestTopicSnapshot(Struct):
    name: str = ""
    partitions: list[RequestPartitionSnapshot] = []


class RequestPartitionSnapshot(Struct):
    partition: Int32 = 0
    current_leader_epoch: Int32 = 0
    snapshot_id: SnapshotId = DEFAULT
    position: Int64 = 0
    replica_directory_id: Annotated[Uuid, tagged(0, since=1), ignorable] = ZERO


class SnapshotId(Struct):
    end_offset: Int64 = 0
    epoch: Int32 = 0


class FetchSnapshotResponse(Message, api_key=59, versions=(0, 1), flexible=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: list[ResponseTopicSnapshot] = []
    node_endpoints: Annotated[list[NodeEndpoint], tagged(0, since=1)] = []


class ResponseTopicSnapshot(Struct):
    name: str = ""
    partitions: list[ResponsePartitionSnapshot] = []


class ResponsePartitionSnapshot(Struct):
    index: Int32 = 0
    error_code: Int16 = 0
    snapshot_id: SnapshotId = DEFAULT
    current_leader: Annotated[LeaderIdAndEpoch, tagged(0, since=0)] = DEFAULT
    size: Int64 = 0
    position: Int64 = 0
    unaligned_records: Records = None


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class NodeEndpoint(Struct):
    node_id: Int32 = 0
    host: str = ""
    port: UInt16 = 0
