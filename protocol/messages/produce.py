"""A producer appends record batches: one batch per partition.

From 4 on the answer may be KAFKA_STORAGE_ERROR; 7 allows zstd; 11 may answer TRANSACTION_ABORTABLE. 12: under
transaction version 2 a Produce also adds its partitions to the transaction (KIP-890). 13 names topics by id.
"""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import DEFAULT, Message, Struct, ignorable, since, tagged, until
from pylogd.protocol.uuids import ZERO
from pylogd.protocol.wire import Int16, Int32, Int64, Records, Uuid


class ProduceRequest(Message, api_key=0, versions=(3, 13), flexible=9):
    transactional_id: str | None = None
    acks: Int16 = 0
    timeout_ms: Int32 = 0
    topic_data: list[TopicProduceData] = []


class TopicProduceData(Struct):
    name: Annotated[str, until(12), ignorable] = ""
    topic_id: Annotated[Uuid, since(13), ignorable] = ZERO
    partition_data: list[PartitionProduceData] = []


class PartitionProduceData(Struct):
    index: Int32 = 0
    records: Records | None = None


class ProduceResponse(Message, api_key=0, versions=(3, 13), flexible=9):
    responses: list[TopicProduceResponse] = []
    throttle_time_ms: Int32 = 0
    node_endpoints: Annotated[list[NodeEndpoint], tagged(0, since=10)] = []


class TopicProduceResponse(Struct):
    name: Annotated[str, until(12), ignorable] = ""
    topic_id: Annotated[Uuid, since(13), ignorable] = ZERO
    partition_responses: list[PartitionProduceResponse] = []


class PartitionProduceResponse(Struct):
    index: Int32 = 0
    error_code: Int16 = 0
    base_offset: Int64 = 0
    log_append_time_ms: Int64 = -1
    log_start_offset: Annotated[Int64, since(5), ignorable] = -1
    record_errors: Annotated[list[BatchIndexAndErrorMessage], since(8), ignorable] = []
    error_message: Annotated[str | None, since(8), ignorable] = None
    current_leader: Annotated[LeaderIdAndEpoch, tagged(0, since=10)] = DEFAULT


class BatchIndexAndErrorMessage(Struct):
    batch_index: Int32 = 0
    batch_index_error_message: str | None = None


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class NodeEndpoint(Struct):
    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = None
