"""A member of a share group acquires records and acknowledges earlier ones.

2: acquire mode and renewing (KIP-1206, KIP-1222). Version 0 was early access and is gone.
"""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import DEFAULT, Message, Struct, ignorable, since, until
from pylogd.protocol.uuids import ZERO
from pylogd.protocol.wire import Int8, Int16, Int32, Int64, Records, Uuid


class ShareFetchRequest(Message, api_key=78, versions=(1, 2), flexible=0):
    group_id: str | None = None
    member_id: str | None = ""
    share_session_epoch: Int32 = 0
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = 0x7FFFFFFF
    max_records: Int32 = 0
    batch_size: Int32 = 0
    share_acquire_mode: Annotated[Int8, since(2), ignorable] = 0
    is_renew_ack: Annotated[bool, since(2)] = False
    topics: list[FetchTopic] = []
    forgotten_topics_data: list[ForgottenTopic] = []


class FetchTopic(Struct):
    topic_id: Uuid = ZERO
    partitions: list[FetchPartition] = []


class FetchPartition(Struct):
    partition_index: Int32 = 0
    partition_max_bytes: Annotated[Int32, until(0)] = 0
    acknowledgement_batches: list[AcknowledgementBatch] = []


class AcknowledgementBatch(Struct):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    acknowledge_types: list[Int8] = []


class ForgottenTopic(Struct):
    topic_id: Uuid = ZERO
    partitions: list[Int32] = []


class ShareFetchResponse(Message, api_key=78, versions=(1, 2), flexible=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: Int32 = 0
    responses: list[ShareFetchableTopicResponse] = []
    node_endpoints: list[NodeEndpoint] = []


class ShareFetchableTopicResponse(Struct):
    topic_id: Uuid = ZERO
    partitions: list[PartitionData] = []


class PartitionData(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    acknowledge_error_code: Int16 = 0
    acknowledge_error_message: str | None = None
    current_leader: LeaderIdAndEpoch = DEFAULT
    records: Records = None
    acquired_records: list[AcquiredRecords] = []


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class AcquiredRecords(Struct):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_count: Int16 = 0


class NodeEndpoint(Struct):
    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = None
