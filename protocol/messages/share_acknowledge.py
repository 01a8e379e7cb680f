"""A member of a share group acknowledges records without fetching more.

2: renewing (KIP-1222). Version 0 was early access and is gone.
"""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import DEFAULT, Message, Struct, ignorable, since
from pylogd.protocol.uuids import ZERO
from pylogd.protocol.wire import Int8, Int16, Int32, Int64, Uuid


class ShareAcknowledgeRequest(Message, api_key=79, versions=(1, 2), flexible=0):
    group_id: str | None = None
    member_id: str | None = ""
    share_session_epoch: Int32 = 0
    is_renew_ack: Annotated[bool, since(2)] = False
    topics: list[AcknowledgeTopic] = []


class AcknowledgeTopic(Struct):
    topic_id: Uuid = ZERO
    partitions: list[AcknowledgePartition] = []


class AcknowledgePartition(Struct):
    partition_index: Int32 = 0
    acknowledgement_batches: list[AcknowledgementBatch] = []


class AcknowledgementBatch(Struct):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    acknowledge_types: list[Int8] = []


class ShareAcknowledgeResponse(Message, api_key=79, versions=(1, 2), flexible=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: Annotated[Int32, since(2), ignorable] = 0
    responses: list[ShareAcknowledgeTopicResponse] = []
    node_endpoints: list[NodeEndpoint] = []


class ShareAcknowledgeTopicResponse(Struct):
    topic_id: Uuid = ZERO
    partitions: list[PartitionData] = []


class PartitionData(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    current_leader: LeaderIdAndEpoch = DEFAULT


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class NodeEndpoint(Struct):
    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = None
