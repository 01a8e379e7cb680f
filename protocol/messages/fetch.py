"""Consumers, followers and raft observers read records, in sessions that repeat only what changed.

From 8 on a throttled answer comes first and the client waits; 10 may carry zstd. 13 names topics by id; 14 may answer
OFFSET_MOVED_TO_TIERED_STORAGE. 15 moves the follower id into replica_state, 17 and 18 serve KRaft (directory id, high
watermark).
"""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import DEFAULT, Message, Struct, ignorable, since, tagged, until
from pylogd.protocol.uuids import ZERO
from pylogd.protocol.wire import Int8, Int16, Int32, Int64, Records, Uuid


class FetchRequest(Message, api_key=1, versions=(4, 18), flexible=12):
    cluster_id: Annotated[str | None, tagged(0, since=12), ignorable] = None
    replica_id: Annotated[Int32, until(14)] = -1
    replica_state: Annotated[ReplicaState, tagged(1, since=15)] = DEFAULT
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = 0x7FFFFFFF
    isolation_level: Int8 = 0
    session_id: Annotated[Int32, since(7), ignorable] = 0
    session_epoch: Annotated[Int32, since(7), ignorable] = -1
    topics: list[FetchTopic] = []
    forgotten_topics_data: Annotated[list[ForgottenTopic], since(7)] = []
    rack_id: Annotated[str, since(11), ignorable] = ""


class ReplicaState(Struct):
    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


class FetchTopic(Struct):
    topic: Annotated[str, until(12), ignorable] = ""
    topic_id: Annotated[Uuid, since(13), ignorable] = ZERO
    partitions: list[FetchPartition] = []


class FetchPartition(Struct):
    partition: Int32 = 0
    current_leader_epoch: Annotated[Int32, since(9), ignorable] = -1
    fetch_offset: Int64 = 0
    last_fetched_epoch: Annotated[Int32, since(12)] = -1
    log_start_offset: Annotated[Int64, since(5), ignorable] = -1
    partition_max_bytes: Int32 = 0
    replica_directory_id: Annotated[Uuid, tagged(0, since=17), ignorable] = ZERO
    high_watermark: Annotated[Int64, tagged(1, since=18), ignorable] = 0x7FFFFFFFFFFFFFFF


class ForgottenTopic(Struct):
    topic: Annotated[str, until(12), ignorable] = ""
    topic_id: Annotated[Uuid, since(13), ignorable] = ZERO
    partitions: list[Int32] = []


class FetchResponse(Message, api_key=1, versions=(4, 18), flexible=12):
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(7), ignorable] = 0
    session_id: Annotated[Int32, since(7)] = 0
    responses: list[FetchableTopicResponse] = []
    node_endpoints: Annotated[list[NodeEndpoint], tagged(0, since=16)] = []


class FetchableTopicResponse(Struct):
    topic: Annotated[str, until(12), ignorable] = ""
    topic_id: Annotated[Uuid, since(13), ignorable] = ZERO
    partitions: list[PartitionData] = []


class PartitionData(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    high_watermark: Int64 = 0
    last_stable_offset: Int64 = -1
    log_start_offset: Annotated[Int64, since(5), ignorable] = -1
    diverging_epoch: Annotated[EpochEndOffset, tagged(0, since=12)] = DEFAULT
    current_leader: Annotated[LeaderIdAndEpoch, tagged(1, since=12)] = DEFAULT
    snapshot_id: Annotated[SnapshotId, tagged(2, since=12)] = DEFAULT
    aborted_transactions: list[AbortedTransaction] | None = []
    preferred_read_replica: Annotated[Int32, since(11)] = -1
    records: Records | None = None


class EpochEndOffset(Struct):
    epoch: Int32 = -1
    end_offset: Int64 = -1


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class SnapshotId(Struct):
    end_offset: Int64 = -1
    epoch: Int32 = -1


class AbortedTransaction(Struct):
    producer_id: Int64 = 0
    first_offset: Int64 = 0


class NodeEndpoint(Struct):
    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = None
