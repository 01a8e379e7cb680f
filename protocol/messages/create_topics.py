"""Create topics.

4 allows -1 for the default partitions and replication factor (KIP-464); 6 may answer THROTTLING_QUOTA_EXCEEDED.
"""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, Struct, ignorable, since, tagged
from pylogd.protocol.uuids import ZERO
from pylogd.protocol.wire import Int8, Int16, Int32, Uuid


class CreateTopicsRequest(Message, api_key=19, versions=(2, 7), flexible=5):
    topics: list[CreatableTopic] = []
    timeout_ms: Int32 = 60000
    validate_only: bool = False


class CreatableTopic(Struct):
    name: str = ""
    num_partitions: Int32 = 0
    replication_factor: Int16 = 0
    assignments: list[CreatableReplicaAssignment] = []
    configs: list[CreatableTopicConfig] = []


class CreatableReplicaAssignment(Struct):
    partition_index: Int32 = 0
    broker_ids: list[Int32] = []


class CreatableTopicConfig(Struct):
    name: str = ""
    value: str | None = ""


class CreateTopicsResponse(Message, api_key=19, versions=(2, 7), flexible=5):
    throttle_time_ms: Int32 = 0
    topics: list[CreatableTopicResult] = []


class CreatableTopicResult(Struct):
    name: str = ""
    topic_id: Annotated[Uuid, since(7), ignorable] = ZERO
    error_code: Int16 = 0
    error_message: str | None = ""
    topic_config_error_code: Annotated[Int16, tagged(0, since=5), ignorable] = 0
    num_partitions: Annotated[Int32, since(5), ignorable] = -1
    replication_factor: Annotated[Int16, since(5), ignorable] = -1
    configs: Annotated[list[CreatableTopicConfigs] | None, since(5), ignorable] = []


class CreatableTopicConfigs(Struct):
    name: str = ""
    value: str | None = ""
    read_only: bool = False
    config_source: Int8 = -1
    is_sensitive: bool = False
