"""What answers of peers mean. Each function returns whether the answer was of use; if not, the peer gets a pause."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pylogd.controller.raft import changes, metadata_partition
from pylogd.controller.raft.leader import Leader
from pylogd.controller.raft.log_view import LogFull, OffsetAndEpoch, appendable, truncation_offset
from pylogd.controller.raft.output import RaftError
from pylogd.controller.raft.roles import Candidate, Follower, Nominee, Prospective, Resigned
from pylogd.controller.raft.voters import Endpoints
from pylogd.protocol.api import ApiKey
from pylogd.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from pylogd.controller.raft.replica import Replica
    from pylogd.protocol.messages.add_raft_voter import AddRaftVoterResponse
    from pylogd.protocol.messages.begin_quorum_epoch import BeginQuorumEpochResponse
    from pylogd.protocol.messages.end_quorum_epoch import EndQuorumEpochResponse
    from pylogd.protocol.messages.fetch import FetchResponse
    from pylogd.protocol.messages.fetch_snapshot import FetchSnapshotResponse
    from pylogd.protocol.messages.remove_raft_voter import RemoveRaftVoterResponse
    from pylogd.protocol.messages.update_raft_voter import UpdateRaftVoterResponse
    from pylogd.protocol.messages.vote import VoteResponse


def handle(node: Replica, source_id: int, response: Any, now_ms: int) -> bool:
    key = response.API_KEY
    if key == ApiKey.API_VERSIONS:
        return changes.versions_learned(node, source_id, response, now_ms)
    if key == ApiKey.UPDATE_RAFT_VOTER:
        return _update_voter(node, response, now_ms)
    if key in (ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER):
        return _change_voter(node, response, now_ms)
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION and isinstance(node.role, Prospective):
        node.become_candidate(now_ms)
        return True
    if response.error_code != ErrorCode.NONE:
        return False
    if key == ApiKey.VOTE:
        return _vote(node, source_id, response, now_ms)
    if key == ApiKey.BEGIN_QUORUM_EPOCH:
        return _begin_quorum_epoch(node, response, now_ms)
    if key == ApiKey.END_QUORUM_EPOCH:
        return _end_quorum_epoch(node, source_id, response, now_ms)
    if key == ApiKey.FETCH:
        return _fetch(node, response, now_ms)
    if key == ApiKey.FETCH_SNAPSHOT:
        return _fetch_snapshot(node, response, now_ms)
    raise ValueError(f"a response of API {key} is not one of the quorum's")


def _common(node: Replica, error: int, leader_id: int, epoch: int, endpoints: Endpoints, now_ms: int) -> bool | None:
    """What every answer says about epoch and leader. None: nothing stands in the way of reading the rest."""
    leader = None if leader_id < 0 else leader_id
    if epoch < node.epoch or error == ErrorCode.UNKNOWN_LEADER_EPOCH:
        return True  # an answer to what we were before
    if epoch > node.epoch or error in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER):
        node.learn(leader, epoch, endpoints, now_ms)
        return True
    if leader is not None and node.leader_id is None and leader != node.local.id:
        node.learn(leader, epoch, endpoints, now_ms)
        return None if error == ErrorCode.NONE else True
    if error == ErrorCode.BROKER_NOT_AVAILABLE:
        return False
    if error == ErrorCode.INVALID_VOTER_KEY:
        return True
    if error == ErrorCode.INVALID_REQUEST:
        raise RaftError("a peer calls our request invalid")
    return None


def _vote(node: Replica, source_id: int, response: VoteResponse, now_ms: int) -> bool:
    partition = metadata_partition.only_partition(response.topics)
    if partition is None:
        return False
    endpoints = metadata_partition.leader_endpoints(response, partition.leader_id, node.settings.listener)
    handled = _common(node, partition.error_code, partition.leader_id, partition.leader_epoch, endpoints, now_ms)
    if handled is not None:
        return handled
    if partition.error_code != ErrorCode.NONE:
        return False
    role = node.role
    if isinstance(role, Nominee):
        role.election.record(source_id, partition.vote_granted)
        if role.election.won:
            if isinstance(role, Candidate):
                node.become_leader(role, now_ms)
            else:
                node.become_candidate(now_ms)
        elif role.election.lost and isinstance(role, Prospective):
            # A candidate waits for its time-out instead, so that the others can try.
            node.election_lost(role, now_ms)
    return True


def _begin_quorum_epoch(node: Replica, response: BeginQuorumEpochResponse, now_ms: int) -> bool:
    partition = metadata_partition.only_partition(response.topics)
    if partition is None:
        return False
    endpoints = metadata_partition.leader_endpoints(response, partition.leader_id, node.settings.listener)
    handled = _common(node, partition.error_code, partition.leader_id, partition.leader_epoch, endpoints, now_ms)
    return partition.error_code == ErrorCode.NONE if handled is None else handled


def _end_quorum_epoch(node: Replica, source_id: int, response: EndQuorumEpochResponse, now_ms: int) -> bool:
    partition = metadata_partition.only_partition(response.topics)
    if partition is None:
        return False
    endpoints = metadata_partition.leader_endpoints(response, partition.leader_id, node.settings.listener)
    handled = _common(node, partition.error_code, partition.leader_id, partition.leader_epoch, endpoints, now_ms)
    if handled is not None:
        return handled
    if partition.error_code != ErrorCode.NONE:
        return False
    role = node.role
    if isinstance(role, Resigned) and source_id in role.unacknowledged:
        role.unacknowledged.remove(source_id)
    return True


def _fetch(node: Replica, response: FetchResponse, now_ms: int) -> bool:
    partition = metadata_partition.fetched_partition(response)
    if partition is None:
        return False
    leader = partition.current_leader
    endpoints = metadata_partition.leader_endpoints(response, leader.leader_id, node.settings.listener)
    handled = _common(node, partition.error_code, leader.leader_id, leader.leader_epoch, endpoints, now_ms)
    if handled is not None:
        return handled
    role = node.role
    if partition.error_code != ErrorCode.NONE or not isinstance(role, Follower):
        return False
    diverging, snapshot = partition.diverging_epoch, partition.snapshot_id
    if diverging.epoch >= 0:
        where = OffsetAndEpoch(diverging.end_offset, diverging.epoch)
        if node.high_watermark is not None and where.offset < node.high_watermark:
            raise RaftError(f"the leader asks to truncate to {where}, below the high watermark {node.high_watermark}")
        node.truncate(truncation_offset(node.log, where))
    elif snapshot.epoch >= 0 and snapshot.end_offset >= 0:
        snapshot_id = OffsetAndEpoch(snapshot.end_offset, snapshot.epoch)
        if node.log.snapshot_size(snapshot_id) is None:
            role.snapshot, role.snapshot_bytes = snapshot_id, 0
    elif snapshot.epoch >= 0 or snapshot.end_offset >= 0:
        return False  # half an id
    else:
        try:
            node.write_fetched(appendable(partition.records or b"", node.log.end_offset, role.epoch))
        except LogFull:
            role.fetched(now_ms)  # the leader lives; it is asked again after a pause
            return False
        if partition.high_watermark >= 0:
            node.advance_high_watermark(partition.high_watermark)
    role.fetched(now_ms)
    return True


def _fetch_snapshot(node: Replica, response: FetchSnapshotResponse, now_ms: int) -> bool:
    partition = metadata_partition.fetched_snapshot(response)
    if partition is None:
        return False
    leader = partition.current_leader
    endpoints = metadata_partition.leader_endpoints(response, leader.leader_id, node.settings.listener)
    handled = _common(node, partition.error_code, leader.leader_id, leader.leader_epoch, endpoints, now_ms)
    if handled is not None:
        return handled
    role = node.role
    if not isinstance(role, Follower):
        return False
    snapshot_id = OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
    if partition.error_code == ErrorCode.SNAPSHOT_NOT_FOUND or min(snapshot_id) < 0:
        # The leader has a newer one by now; the next fetch tells which.
        role.snapshot = None
        role.fetched(now_ms)
        return True
    if partition.error_code != ErrorCode.NONE:
        return False
    if role.snapshot != snapshot_id or role.snapshot_bytes != partition.position:
        return False
    node.log.write_snapshot(snapshot_id, role.snapshot_bytes, partition.unaligned_records)
    role.snapshot_bytes += len(partition.unaligned_records)
    if role.snapshot_bytes >= partition.size:
        role.snapshot = None
        node.install_snapshot(snapshot_id)
    role.fetched(now_ms)
    return True


def _update_voter(node: Replica, response: UpdateRaftVoterResponse, now_ms: int) -> bool:
    current = response.current_leader
    endpoints: Endpoints = {node.settings.listener: (current.host, current.port)} if current.host else {}
    handled = _common(node, response.error_code, current.leader_id, current.leader_epoch, endpoints, now_ms)
    if handled is not None:
        return handled
    role = node.role
    if not isinstance(role, Follower) or response.error_code not in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION):
        return False
    role.has_updated_leader = True
    role.fetched(now_ms)
    return True


def _change_voter(node: Replica, response: AddRaftVoterResponse | RemoveRaftVoterResponse, now_ms: int) -> bool:
    """Done, done before, or to be tried again a little later."""
    done = (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.DUPLICATE_VOTER, ErrorCode.VOTER_NOT_FOUND)
    if isinstance(node.role, Follower):
        node.role.join_answered(now_ms)
    return response.error_code in done and not isinstance(node.role, Leader)
