"""What a message says about the metadata partition, and where it says that the leader is.

Every message of the quorum is about one partition, `__cluster_metadata-0`; what is about anything else has no entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from typing import TYPE_CHECKING, Protocol, TypeVar, Union

from pylogd.controller.raft.voters import NO_ENDPOINTS, Endpoints
from pylogd.metadata.topic_names import CLUSTER_METADATA_TOPIC
from pylogd.protocol.uuids import METADATA_TOPIC_ID

if TYPE_CHECKING:
    from pylogd.protocol.messages.begin_quorum_epoch import BeginQuorumEpochResponse
    from pylogd.protocol.messages.end_quorum_epoch import EndQuorumEpochResponse
    from pylogd.protocol.messages.fetch import (
        FetchableTopicResponse,
        FetchPartition,
        FetchRequest,
        FetchResponse,
        FetchTopic,
        PartitionData,
    )
    from pylogd.protocol.messages.fetch_snapshot import (
        FetchSnapshotRequest,
        FetchSnapshotResponse,
        RequestPartitionSnapshot,
        ResponsePartitionSnapshot,
    )
    from pylogd.protocol.messages.vote import VoteResponse


class _Indexed(Protocol):
    partition_index: int


P = TypeVar("P", bound=_Indexed)


class _NamedTopic(Protocol[P]):
    topic_name: str
    partitions: list[P]


class _Topic(Protocol):
    @property
    def partitions(self) -> Sized: ...


def _is_one(topics: Sequence[_Topic]) -> bool:
    return len(topics) == 1 and len(topics[0].partitions) == 1


def only_partition(topics: Sequence[_NamedTopic[P]]) -> P | None:
    """The entry of the metadata partition if there is nothing else, otherwise None."""
    if not _is_one(topics):
        return None
    topic, partition = topics[0], topics[0].partitions[0]
    return partition if topic.topic_name == CLUSTER_METADATA_TOPIC and partition.partition_index == 0 else None


def _is_metadata(topic: FetchTopic | FetchableTopicResponse) -> bool:
    """Fetch has the topic's id from version 13 on and its name before."""
    return topic.topic == CLUSTER_METADATA_TOPIC or bytes(topic.topic_id) == METADATA_TOPIC_ID


def fetch_partition(request: FetchRequest) -> FetchPartition | None:
    """What is asked about the metadata partition, if about nothing else."""
    topics = request.topics
    if not _is_one(topics):
        return None
    partition = topics[0].partitions[0]
    return partition if _is_metadata(topics[0]) and partition.partition == 0 else None


def fetched_partition(response: FetchResponse) -> PartitionData | None:
    """What is answered about the metadata partition, if about nothing else."""
    topics = response.responses
    if not _is_one(topics):
        return None
    partition = topics[0].partitions[0]
    return partition if _is_metadata(topics[0]) and partition.partition_index == 0 else None


def snapshot_partition(request: FetchSnapshotRequest) -> RequestPartitionSnapshot | None:
    """The same for FetchSnapshot."""
    topics = request.topics
    if not _is_one(topics):
        return None
    partition = topics[0].partitions[0]
    return partition if topics[0].name == CLUSTER_METADATA_TOPIC and partition.partition == 0 else None


def fetched_snapshot(response: FetchSnapshotResponse) -> ResponsePartitionSnapshot | None:
    topics = response.topics
    if not _is_one(topics):
        return None
    partition = topics[0].partitions[0]
    return partition if topics[0].name == CLUSTER_METADATA_TOPIC and partition.index == 0 else None


class _Endpoint(Protocol):
    name: str
    host: str
    port: int


def endpoints_of(listed: Iterable[_Endpoint]) -> Endpoints:
    """Endpoints by listener name in a request."""
    return {e.name: (e.host, e.port) for e in listed}


#: Answers that say where the leader is.
NamesLeader = Union[
    "VoteResponse", "BeginQuorumEpochResponse", "EndQuorumEpochResponse", "FetchResponse", "FetchSnapshotResponse"
]


def leader_endpoints(response: NamesLeader, leader_id: int | None, listener: str) -> Endpoints:
    """The leader's address in a response's node_endpoints, if it is there."""
    for node in response.node_endpoints:
        if node.node_id == leader_id:
            return {listener: (node.host, node.port)}
    return NO_ENDPOINTS
