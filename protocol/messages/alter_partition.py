"""A partition leader proposes a new ISR to the controller.

Request and response differ in what they call PartitionData and TopicData: here the names are prefixed with Request
and Response.
"""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, Struct, since, until
from pylogd.protocol.uuids import ZERO
from pylogd.protocol.wire import Int8, Int16, Int32, Int64, Uuid


class AlterPartitionRequest(Message, api_key=56, versions=(2, 3), flexible=0):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    topics: list[RequestTopicData] = []


class RequestTopicData(Struct):
    topic_id: Uuid = ZERO
    partitions: list[RequestPartitionData] = []


class RequestPartitionData(Struct):
    partition_index: Int32 = 0
    leader_epoch: Int32 = 0
    new_isr: Annotated[list[Int32], until(2)] = []
    new_isr_with_epochs: Annotated[list[BrokerState], since(3)] = []
    leader_recovery_state: Int8 = 0
    partition_epoch: Int32 = 0


class BrokerState(Struct):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1


class AlterPartitionResponse(Message, api_key=56, versions=(2, 3), flexible=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: list[ResponseTopicData] = []


class ResponseTopicData(Struct):
    topic_id: Uuid = ZERO
    partitions: list[ResponsePartitionData] = []


class ResponsePartitionData(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    isr: list[Int32] = []
    leader_recovery_state: Int8 = 0
    partition_epoch: Int32 = 0
