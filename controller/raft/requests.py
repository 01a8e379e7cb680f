"""Answers to what peers ask. One function for each API; those about the voters are in `changes.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pylogd.controller.raft import changes, fetching, metadata_partition, raft_messages
from pylogd.controller.raft.leader import Leader
from pylogd.controller.raft.log_view import BOOTSTRAP_SNAPSHOT, OffsetAndEpoch
from pylogd.controller.raft.roles import Follower
from pylogd.controller.raft.voters import ReplicaKey
from pylogd.protocol.api import ApiKey
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.uuids import ZERO

if TYPE_CHECKING:
    from pylogd.controller.raft.inbound import Inbound
    from pylogd.controller.raft.replica import Replica
    from pylogd.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
    from pylogd.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
    from pylogd.protocol.messages.fetch import FetchRequest
    from pylogd.protocol.messages.fetch_snapshot import FetchSnapshotRequest
    from pylogd.protocol.messages.vote import RequestPartitionData, VoteRequest
    from pylogd.protocol.schema import Message


def handle(node: Replica, inbound: Inbound[Any], now_ms: int) -> None:
    request = inbound.request
    key = request.API_KEY
    if request.cluster_id is not None and request.cluster_id != node.settings.cluster_id:
        node.reply(inbound.token, _foreign(node, inbound))
    elif key == ApiKey.FETCH:
        _fetch(node, inbound, now_ms)
    elif key == ApiKey.VOTE:
        node.reply(inbound.token, _vote(node, inbound, now_ms))
    elif key == ApiKey.BEGIN_QUORUM_EPOCH:
        node.reply(inbound.token, _begin_quorum_epoch(node, inbound, now_ms))
    elif key == ApiKey.END_QUORUM_EPOCH:
        node.reply(inbound.token, _end_quorum_epoch(node, inbound, now_ms))
    elif key == ApiKey.FETCH_SNAPSHOT:
        node.reply(inbound.token, _fetch_snapshot(node, inbound, now_ms))
    elif key == ApiKey.ADD_RAFT_VOTER:
        changes.add_voter(node, inbound, now_ms)
    elif key == ApiKey.REMOVE_RAFT_VOTER:
        changes.remove_voter(node, inbound, now_ms)
    elif key == ApiKey.UPDATE_RAFT_VOTER:
        node.reply(inbound.token, changes.update_voter(node, inbound, now_ms))
    else:
        raise ValueError(f"API {key} is not one of the quorum's")


def _foreign(node: Replica, inbound: Inbound[Any]) -> Message:
    """Somebody of another cluster."""
    error = ErrorCode.INCONSISTENT_CLUSTER_ID
    if inbound.request.API_KEY in (ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER):
        message = (
            f'The given id "{inbound.request.cluster_id}" doesn\'t match the cluster id "{node.settings.cluster_id}"'
        )
        return raft_messages.change_response(inbound.request, error, message)
    if inbound.request.API_KEY == ApiKey.UPDATE_RAFT_VOTER:
        return raft_messages.update_voter_response(node.leader_info, inbound.listener, error)
    return raft_messages.top_level_error(inbound.request, error)


def _voter_error(node: Replica, remote_id: int, epoch: int) -> ErrorCode | None:
    if epoch < node.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.INVALID_REQUEST if remote_id < 0 else None


def _means_us(node: Replica, voter_id: int, directory_id: bytes) -> bool:
    """Whether a request that names its receiver names us. The id alone is not enough: a replica that lost its disk has
    lost the votes it gave. Old requests name nobody."""
    if voter_id < 0:
        return True
    return voter_id == node.local.id and bytes(directory_id) in (ZERO, node.local.directory_id)


def _as_long_as_ours(node: Replica, partition: RequestPartitionData) -> bool:
    """Whether a candidate's log may hold all that is committed, judged by ours: the later epoch wins, then length."""
    end = node.end
    return (partition.last_offset_epoch, partition.last_offset) >= (end.epoch, end.offset)


def _vote(node: Replica, inbound: Inbound[VoteRequest], now_ms: int) -> Message:
    request, version, listener = inbound.request, inbound.version, inbound.listener
    partition = metadata_partition.only_partition(request.topics)
    if partition is None:
        return raft_messages.top_level_error(request, ErrorCode.INVALID_REQUEST)
    pre_vote = partition.pre_vote
    epoch, last_epoch = partition.replica_epoch, partition.last_offset_epoch
    illegal = last_epoch > epoch if pre_vote else last_epoch >= epoch
    if partition.last_offset < 0 or last_epoch < 0 or illegal:
        return raft_messages.vote_response(node.leader_info, listener, version, ErrorCode.INVALID_REQUEST, False)
    error = _voter_error(node, partition.replica_id, epoch)
    if error is not None:
        return raft_messages.vote_response(node.leader_info, listener, version, error, False)
    if epoch > node.epoch:
        node.become_unattached(epoch, None, now_ms)
    if not _means_us(node, request.voter_id, partition.voter_directory_id):
        return raft_messages.vote_response(node.leader_info, listener, version, ErrorCode.INVALID_VOTER_KEY, False)
    candidate = ReplicaKey(partition.replica_id, bytes(partition.replica_directory_id))
    granted = node.role.grants(candidate, _as_long_as_ours(node, partition), pre_vote)
    if granted and not pre_vote:
        node.vote_for(candidate, now_ms)
    return raft_messages.vote_response(node.leader_info, listener, version, ErrorCode.NONE, granted)


def _begin_quorum_epoch(node: Replica, inbound: Inbound[BeginQuorumEpochRequest], now_ms: int) -> Message:
    request, version, listener = inbound.request, inbound.version, inbound.listener
    partition = metadata_partition.only_partition(request.topics)
    if partition is None:
        return raft_messages.top_level_error(request, ErrorCode.INVALID_REQUEST)
    error = _voter_error(node, partition.leader_id, partition.leader_epoch)
    if error is None:
        endpoints = metadata_partition.endpoints_of(request.leader_endpoints)
        node.learn(partition.leader_id, partition.leader_epoch, endpoints, now_ms)
        if not _means_us(node, request.voter_id, partition.voter_directory_id):
            error = ErrorCode.INVALID_VOTER_KEY
    return raft_messages.begin_quorum_epoch_response(node.leader_info, listener, version, error or ErrorCode.NONE)


def _end_quorum_epoch(node: Replica, inbound: Inbound[EndQuorumEpochRequest], now_ms: int) -> Message:
    request, version, listener = inbound.request, inbound.version, inbound.listener
    partition = metadata_partition.only_partition(request.topics)
    if partition is None:
        return raft_messages.top_level_error(request, ErrorCode.INVALID_REQUEST)
    error = _voter_error(node, partition.leader_id, partition.leader_epoch)
    if error is None:
        endpoints = metadata_partition.endpoints_of(request.leader_endpoints)
        node.learn(partition.leader_id, partition.leader_epoch, endpoints, now_ms)
        role = node.role
        if isinstance(role, Follower) and role.leader_id == partition.leader_id:
            if version >= 1:
                successors = [
                    ReplicaKey(c.candidate_id, bytes(c.candidate_directory_id)) for c in partition.preferred_candidates
                ]
            else:
                successors = [ReplicaKey(id_) for id_ in partition.preferred_successors]
            role.fetch_deadline_ms = now_ms + _succession_backoff_ms(node, successors)
    return raft_messages.end_quorum_epoch_response(node.leader_info, listener, version, error or ErrorCode.NONE)


def _succession_backoff_ms(node: Replica, successors: list[ReplicaKey]) -> int:
    """The first successor runs for office at once, the next ones a little later each, so that they do not compete."""
    longest_ms = node.timeouts.election_backoff_ms_max
    position = len(successors)
    for at, key in enumerate(successors):
        if _means_us(node, key.id, key.directory_id):
            position = at
            break
    if position == 0:
        return 0
    if position >= len(successors):
        return longest_ms
    return min(longest_ms, (longest_ms >> (len(successors) - 1)) << (position - 1))


def _fetch(node: Replica, inbound: Inbound[FetchRequest], now_ms: int) -> None:
    request, version, listener = inbound.request, inbound.version, inbound.listener
    partition = metadata_partition.fetch_partition(request)
    if partition is None:
        node.reply(inbound.token, raft_messages.top_level_error(request, ErrorCode.INVALID_REQUEST))
        return
    error: ErrorCode | None
    last_epoch = partition.last_fetched_epoch
    if (
        request.max_wait_ms < 0
        or partition.fetch_offset < 0
        or last_epoch < 0
        or last_epoch > partition.current_leader_epoch
    ):
        error = ErrorCode.INVALID_REQUEST
    else:
        error = node.leader_error(partition.current_leader_epoch)
    role = node.role
    if error is not None or not isinstance(role, Leader):
        code = error or ErrorCode.NOT_LEADER_OR_FOLLOWER
        response = raft_messages.fetch_response(node.leader_info, listener, version, code, node.log.start_offset)
        node.reply(inbound.token, response)
        return
    fetching.fetched(node, role, inbound, partition, now_ms)
    response, news = fetching.fetch_answer(node, inbound, partition)
    if news or request.max_wait_ms == 0:
        node.reply(inbound.token, response)
    else:
        node.fetches.add(inbound, partition, now_ms + request.max_wait_ms)


def _fetch_snapshot(node: Replica, inbound: Inbound[FetchSnapshotRequest], now_ms: int) -> Message:
    request, version, listener = inbound.request, inbound.version, inbound.listener
    partition = metadata_partition.snapshot_partition(request)
    if partition is None:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return raft_messages.fetch_snapshot_response(node.leader_info, listener, version, error)
    refused = node.leader_error(partition.current_leader_epoch)
    role = node.role
    if refused is not None or not isinstance(role, Leader):
        code = refused or ErrorCode.NOT_LEADER_OR_FOLLOWER
        return raft_messages.fetch_snapshot_response(node.leader_info, listener, version, code)
    snapshot_id = OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
    size = node.log.snapshot_size(snapshot_id)
    if size is None or snapshot_id == BOOTSTRAP_SNAPSHOT:
        return raft_messages.fetch_snapshot_response(node.leader_info, listener, version, ErrorCode.SNAPSHOT_NOT_FOUND)
    position = partition.position
    if not 0 <= position < size:
        return raft_messages.fetch_snapshot_response(
            node.leader_info, listener, version, ErrorCode.POSITION_OUT_OF_RANGE
        )
    if request.replica_id != node.local.id:
        role.heard_from(ReplicaKey(request.replica_id, bytes(partition.replica_directory_id)), now_ms)
    limit = min(request.max_bytes, node.settings.fetch_snapshot_bytes_max)
    data = node.log.read_snapshot(snapshot_id, position, limit)
    none = ErrorCode.NONE
    return raft_messages.fetch_snapshot_response(
        node.leader_info, listener, version, none, snapshot_id, size, position, data
    )
