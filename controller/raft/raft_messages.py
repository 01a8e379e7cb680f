"""The requests the core sends and the answers it gives; `metadata_partition.py` reads what peers send.

Every request is about one partition, `__cluster_metadata-0`; anything else is refused. Answers name the leader's
address on the listener the request came in on, from the version on that has room for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from pylogd.controller.raft.log_view import Match, OffsetAndEpoch
from pylogd.controller.raft.voters import Endpoints, ReplicaKey
from pylogd.metadata.topic_names import CLUSTER_METADATA_TOPIC
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.schema import Message
from pylogd.protocol.uuids import METADATA_TOPIC_ID

if TYPE_CHECKING:
    from pylogd.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
    from pylogd.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
    from pylogd.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
    from pylogd.protocol.messages.fetch import (
        FetchRequest,
        FetchResponse,
    )
    from pylogd.protocol.messages.fetch_snapshot import (
        FetchSnapshotRequest,
        FetchSnapshotResponse,
    )
    from pylogd.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
    from pylogd.protocol.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
    from pylogd.protocol.messages.vote import VoteRequest, VoteResponse

UNKNOWN_LEADER = -1


N = TypeVar("N")


class LeaderInfo:
    """The sender's idea of the leader, which goes into every answer."""

    __slots__ = ("endpoints", "epoch", "id")

    def __init__(self, epoch: int, leader_id: int | None, endpoints: Endpoints) -> None:
        self.epoch = epoch
        self.id = UNKNOWN_LEADER if leader_id is None else leader_id
        self.endpoints = endpoints

    def nodes(self, node_class: Callable[..., N], listener: str) -> list[N]:
        address = self.endpoints.get(listener)
        if address is None or self.id < 0:
            return []
        return [node_class(node_id=self.id, host=address[0], port=address[1])]


# -- requests


def vote_request(
    cluster_id: str, epoch: int, local: ReplicaKey, voter: ReplicaKey, end: OffsetAndEpoch, pre_vote: bool
) -> VoteRequest:
    from pylogd.protocol.messages import vote as m

    partition = m.RequestPartitionData(
        partition_index=0,
        replica_epoch=epoch,
        replica_id=local.id,
        replica_directory_id=local.directory_id,
        voter_directory_id=voter.directory_id,
        last_offset_epoch=end.epoch,
        last_offset=end.offset,
        pre_vote=pre_vote,
    )
    topics = [m.RequestTopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])]
    return m.VoteRequest(cluster_id=cluster_id, voter_id=voter.id, topics=topics)


def begin_quorum_epoch_request(
    cluster_id: str, epoch: int, leader_id: int, endpoints: Endpoints, voter: ReplicaKey
) -> BeginQuorumEpochRequest:
    from pylogd.protocol.messages import begin_quorum_epoch as m

    partition = m.RequestPartitionData(
        partition_index=0, voter_directory_id=voter.directory_id, leader_id=leader_id, leader_epoch=epoch
    )
    return m.BeginQuorumEpochRequest(
        cluster_id=cluster_id,
        voter_id=voter.id,
        topics=[m.RequestTopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=[m.LeaderEndpoint(name=n, host=h, port=p) for n, (h, p) in endpoints.items()],
    )


def end_quorum_epoch_request(
    cluster_id: str, epoch: int, leader_id: int, successors: list[ReplicaKey]
) -> EndQuorumEpochRequest:
    from pylogd.protocol.messages import end_quorum_epoch as m

    partition = m.RequestPartitionData(
        partition_index=0,
        leader_id=leader_id,
        leader_epoch=epoch,
        preferred_successors=[key.id for key in successors],
        preferred_candidates=[
            m.ReplicaInfo(candidate_id=key.id, candidate_directory_id=key.directory_id) for key in successors
        ],
    )
    topics = [m.RequestTopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])]
    return m.EndQuorumEpochRequest(cluster_id=cluster_id, topics=topics)


def fetch_request(
    cluster_id: str,
    epoch: int,
    local: ReplicaKey,
    end: OffsetAndEpoch,
    high_watermark: int | None,
    max_bytes: int,
    max_wait_ms: int,
) -> FetchRequest:
    from pylogd.protocol.messages import fetch as m

    partition = m.FetchPartition(
        partition=0,
        current_leader_epoch=epoch,
        fetch_offset=end.offset,
        last_fetched_epoch=end.epoch,
        replica_directory_id=local.directory_id,
        high_watermark=-1 if high_watermark is None else high_watermark,
    )
    return m.FetchRequest(
        cluster_id=cluster_id,
        replica_state=m.ReplicaState(replica_id=local.id),
        max_wait_ms=max_wait_ms,
        max_bytes=max_bytes,
        topics=[m.FetchTopic(topic=CLUSTER_METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )


def fetch_snapshot_request(
    cluster_id: str, epoch: int, local: ReplicaKey, snapshot_id: OffsetAndEpoch, position: int, max_bytes: int
) -> FetchSnapshotRequest:
    from pylogd.protocol.messages import fetch_snapshot as m

    partition = m.RequestPartitionSnapshot(
        partition=0,
        current_leader_epoch=epoch,
        snapshot_id=m.SnapshotId(end_offset=snapshot_id.offset, epoch=snapshot_id.epoch),
        position=position,
        replica_directory_id=local.directory_id,
    )
    return m.FetchSnapshotRequest(
        cluster_id=cluster_id,
        replica_id=local.id,
        max_bytes=max_bytes,
        topics=[m.RequestTopicSnapshot(name=CLUSTER_METADATA_TOPIC, partitions=[partition])],
    )


def add_voter_request(cluster_id: str, local: ReplicaKey, endpoints: Endpoints, timeout_ms: int) -> AddRaftVoterRequest:
    """What a replica sends on its own behalf: it does not wait for the commit, as it must fetch for it to happen."""
    from pylogd.protocol.messages import add_raft_voter as m

    return m.AddRaftVoterRequest(
        cluster_id=cluster_id,
        timeout_ms=timeout_ms,
        voter_id=local.id,
        voter_directory_id=local.directory_id,
        listeners=[m.Listener(name=n, host=h, port=p) for n, (h, p) in endpoints.items()],
        ack_when_committed=False,
    )


def remove_voter_request(cluster_id: str, voter: ReplicaKey) -> RemoveRaftVoterRequest:
    from pylogd.protocol.messages import remove_raft_voter as m

    return m.RemoveRaftVoterRequest(cluster_id=cluster_id, voter_id=voter.id, voter_directory_id=voter.directory_id)


def update_voter_request(
    cluster_id: str, epoch: int, local: ReplicaKey, endpoints: Endpoints, versions: tuple[int, int]
) -> UpdateRaftVoterRequest:
    from pylogd.protocol.messages import update_raft_voter as m

    return m.UpdateRaftVoterRequest(
        cluster_id=cluster_id,
        current_leader_epoch=epoch,
        voter_id=local.id,
        voter_directory_id=local.directory_id,
        listeners=[m.Listener(name=n, host=h, port=p) for n, (h, p) in endpoints.items()],
        kraft_version_feature=m.KRaftVersionFeature(
            min_supported_version=versions[0], max_supported_version=versions[1]
        ),
    )


# -- responses


def vote_response(leader: LeaderInfo, listener: str, version: int, error: ErrorCode, granted: bool) -> VoteResponse:
    from pylogd.protocol.messages import vote as m

    partition = m.ResponsePartitionData(
        error_code=error, leader_id=leader.id, leader_epoch=leader.epoch, vote_granted=granted
    )
    response = m.VoteResponse(topics=[m.ResponseTopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])])
    if version >= 1:
        response.node_endpoints = leader.nodes(m.NodeEndpoint, listener)
    return response


def begin_quorum_epoch_response(
    leader: LeaderInfo, listener: str, version: int, error: ErrorCode
) -> BeginQuorumEpochResponse:
    from pylogd.protocol.messages import begin_quorum_epoch as m

    partition = m.ResponsePartitionData(error_code=error, leader_id=leader.id, leader_epoch=leader.epoch)
    response = m.BeginQuorumEpochResponse(
        topics=[m.ResponseTopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])]
    )
    if version >= 1:
        response.node_endpoints = leader.nodes(m.NodeEndpoint, listener)
    return response


def end_quorum_epoch_response(
    leader: LeaderInfo, listener: str, version: int, error: ErrorCode
) -> EndQuorumEpochResponse:
    from pylogd.protocol.messages import end_quorum_epoch as m

    partition = m.ResponsePartitionData(error_code=error, leader_id=leader.id, leader_epoch=leader.epoch)
    response = m.EndQuorumEpochResponse(
        topics=[m.ResponseTopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])]
    )
    if version >= 1:
        response.node_endpoints = leader.nodes(m.NodeEndpoint, listener)
    return response


def fetch_response(
    leader: LeaderInfo,
    listener: str,
    version: int,
    error: ErrorCode,
    log_start_offset: int,
    high_watermark: int | None = None,
    match: Match | None = None,
    records: bytes = b"",
) -> FetchResponse:
    from pylogd.protocol.messages import fetch as m

    partition = m.PartitionData(
        partition_index=0,
        error_code=error,
        high_watermark=-1 if high_watermark is None else high_watermark,
        log_start_offset=log_start_offset,
        current_leader=m.LeaderIdAndEpoch(leader_id=leader.id, leader_epoch=leader.epoch),
        records=records,
    )
    if match is not None and match.diverging is not None:
        partition.diverging_epoch = m.EpochEndOffset(epoch=match.diverging.epoch, end_offset=match.diverging.offset)
    if match is not None and match.snapshot is not None:
        partition.snapshot_id = m.SnapshotId(end_offset=match.snapshot.offset, epoch=match.snapshot.epoch)
    topic = m.FetchableTopicResponse(topic=CLUSTER_METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])
    response = m.FetchResponse(responses=[topic])
    if version >= 17:
        response.node_endpoints = leader.nodes(m.NodeEndpoint, listener)
    return response


def fetch_snapshot_response(
    leader: LeaderInfo,
    listener: str,
    version: int,
    error: ErrorCode,
    snapshot_id: OffsetAndEpoch | None = None,
    size: int = 0,
    position: int = 0,
    records: bytes = b"",
) -> FetchSnapshotResponse:
    from pylogd.protocol.messages import fetch_snapshot as m

    partition = m.ResponsePartitionSnapshot(
        index=0,
        error_code=error,
        current_leader=m.LeaderIdAndEpoch(leader_id=leader.id, leader_epoch=leader.epoch),
        size=size,
        position=position,
        unaligned_records=records,
    )
    if snapshot_id is not None:
        partition.snapshot_id = m.SnapshotId(end_offset=snapshot_id.offset, epoch=snapshot_id.epoch)
    response = m.FetchSnapshotResponse(
        topics=[m.ResponseTopicSnapshot(name=CLUSTER_METADATA_TOPIC, partitions=[partition])]
    )
    if version >= 1:
        response.node_endpoints = leader.nodes(m.NodeEndpoint, listener)
    return response


def update_voter_response(leader: LeaderInfo, listener: str, error: ErrorCode) -> UpdateRaftVoterResponse:
    from pylogd.protocol.messages import update_raft_voter as m

    host, port = leader.endpoints.get(listener, ("", 0))
    return m.UpdateRaftVoterResponse(
        error_code=error,
        current_leader=m.CurrentLeader(leader_id=leader.id, leader_epoch=leader.epoch, host=host, port=port),
    )


def change_response(
    request: AddRaftVoterRequest | RemoveRaftVoterRequest, error: ErrorCode, message: str | None = None
) -> AddRaftVoterResponse | RemoveRaftVoterResponse:
    """The answer to AddRaftVoter or RemoveRaftVoter."""
    from pylogd.protocol.api import ApiKey, response_class

    if message is None and error is not ErrorCode.NONE:
        message = error.message
    answer: Any = response_class(ApiKey(request.API_KEY))()
    answer.error_code, answer.error_message = error, message
    changed: AddRaftVoterResponse | RemoveRaftVoterResponse = answer
    return changed


def top_level_error(request: Message, error: ErrorCode) -> Message:
    """A response that holds nothing but its error."""
    from pylogd.protocol.api import ApiKey, response_class

    answer: Any = response_class(ApiKey(request.API_KEY))()
    answer.error_code = error
    failed: Message = answer
    return failed
