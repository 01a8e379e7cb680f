"""Brokers, topics, partitions and their leaders.

In version 0 an empty list asks for all topics; later null does, and empty asks for none. 12 is the first version
where a topic may be asked for by id (10 and 11 had the field, but brokers did not serve it).
"""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, Struct, ignorable, nullable, since, until
from pylogd.protocol.uuids import ZERO
from pylogd.protocol.wire import Int16, Int32, Uuid


class MetadataRequest(Message, api_key=3, versions=(0, 13), flexible=9):
    topics: Annotated[list[MetadataRequestTopic] | None, nullable(since=1)] = []
    allow_auto_topic_creation: Annotated[bool, since(4)] = True
    include_cluster_authorized_operations: Annotated[bool, since(8), until(10)] = False
    include_topic_authorized_operations: Annotated[bool, since(8)] = False


class MetadataRequestTopic(Struct):
    topic_id: Annotated[Uuid, since(10), ignorable] = ZERO
    name: Annotated[str | None, nullable(since=10)] = ""


class MetadataResponse(Message, api_key=3, versions=(0, 13), flexible=9):
    throttle_time_ms: Annotated[Int32, since(3), ignorable] = 0
    brokers: list[MetadataResponseBroker] = []
    cluster_id: Annotated[str | None, since(2), ignorable] = None
    controller_id: Annotated[Int32, since(1), ignorable] = -1
    topics: list[MetadataResponseTopic] = []
    cluster_authorized_operations: Annotated[Int32, since(8), until(10)] = -0x80000000
    error_code: Annotated[Int16, since(13), ignorable] = 0


class MetadataResponseBroker(Struct):
    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: Annotated[str | None, since(1), ignorable] = None


class MetadataResponseTopic(Struct):
    error_code: Int16 = 0
    name: Annotated[str | None, nullable(since=12)] = ""
    topic_id: Annotated[Uuid, since(10), ignorable] = ZERO
    is_internal: Annotated[bool, since(1), ignorable] = False
    partitions: list[MetadataResponsePartition] = []
    topic_authorized_operations: Annotated[Int32, since(8)] = -0x80000000


class MetadataResponsePartition(Struct):
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Annotated[Int32, since(7), ignorable] = -1
    replica_nodes: list[Int32] = []
    isr_nodes: list[Int32] = []
    offline_replicas: Annotated[list[Int32], since(5), ignorable] = []
