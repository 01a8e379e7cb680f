"""Elect preferred leaders; from version 1 on also unclean ones."""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, Struct, since
from pylogd.protocol.wire import Int8, Int16, Int32


class ElectLeadersRequest(Message, api_key=43, versions=(0, 2), flexible=2):
    election_type: Annotated[Int8, since(1)] = 0
    topic_partitions: list[TopicPartitions] | None = []
    timeout_ms: Int32 = 60000


class TopicPartitions(Struct):
    topic: str = ""
    partitions: list[Int32] = []


class ElectLeadersResponse(Message, api_key=43, versions=(0, 2), flexible=2):
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(1)] = 0
    replica_election_results: list[ReplicaElectionResult] = []


class ReplicaElectionResult(Struct):
    topic: str = ""
    partition_result: list[PartitionResult] = []


class PartitionResult(Struct):
    partition_id: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
