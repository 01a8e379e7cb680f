"""Changes of the voters: the records that open an epoch, and adding, removing and updating a voter.

A set of voters takes effect when it is appended, and one change is committed before the next begins: then any majority
of the old set and any of the new one share a replica, since they differ by one voter. A new leader commits a record of
its own epoch first, for the same reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pylogd.controller.raft import metadata_partition, raft_messages
from pylogd.controller.raft.connections import NEVER_MS
from pylogd.controller.raft.leader import Leader, PendingChange
from pylogd.controller.raft.voters import Node, ReplicaKey, VoterNode, VoterSet
from pylogd.metadata.record_batches import control_batch
from pylogd.protocol.control import ControlType
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.schema import Message
from pylogd.protocol.uuids import ZERO

if TYPE_CHECKING:
    from pylogd.controller.raft.inbound import Inbound
    from pylogd.controller.raft.leader import VoterChange
    from pylogd.controller.raft.replica import Replica
    from pylogd.protocol.messages.add_raft_voter import AddRaftVoterRequest
    from pylogd.protocol.messages.api_versions import ApiVersionsResponse
    from pylogd.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
    from pylogd.protocol.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse

KRAFT_VERSION = "kraft.version"
#: The kind of a control record, the record, and its version.
ControlRecord = tuple[ControlType, Message, int]


def _write(node: Replica, records: list[ControlRecord], now_ms: int) -> int:
    """Appends control records; returns the offset of the last."""
    timestamp_ms = node.wall_ms(now_ms)
    node.write(control_batch(records, base_offset=node.log.end_offset, epoch=node.epoch, timestamp_ms=timestamp_ms))
    return node.log.end_offset - 1


def _version_record(version: int) -> ControlRecord:
    from pylogd.protocol.messages import control_records as c

    return ControlType.KRAFT_VERSION, c.KRaftVersionRecord(version=0, kraft_version=version), 0


def _voters_record(voters: VoterSet) -> ControlRecord:
    return ControlType.KRAFT_VOTERS, voters.to_record(), 0


def open_epoch(node: Replica, leader: Leader, now_ms: int) -> None:
    """LeaderChange; with kraft.version 1 also the version and the voters if the log has none yet (they were in the
    bootstrap snapshot) or has this leader with other endpoints."""
    from pylogd.protocol.messages import control_records as c

    membership = node.membership
    voters = membership.voters
    message = c.LeaderChangeMessage(
        version=0,
        leader_id=leader.local.key.id,
        voters=[c.LeaderChangeVoter(voter_id=id_) for id_ in voters.ids],
        granting_voters=[c.LeaderChangeVoter(voter_id=id_) for id_ in leader.granting],
    )
    records: list[ControlRecord] = [(ControlType.LEADER_CHANGE, message, 0)]
    if membership.kraft_version >= 1:
        if membership.voters_offset == -1 or voters.needs_update(leader.local):
            records.append(_version_record(membership.kraft_version))
            records.append(_voters_record(voters.update(leader.local) or voters))
    else:
        leader.volatile_voters = voters.update(leader.local, any_directory=True)
    _write(node, records, now_ms)


# -- one at a time


def _why_not(node: Replica, leader: Leader, what: str) -> tuple[ErrorCode, str] | None:
    """What stands in the way of a change of the voters now."""
    if leader.pending is not None:
        return (
            ErrorCode.REQUEST_TIMED_OUT,
            "Request timed out waiting for leader to handle previous voter change request",
        )
    if leader.high_watermark is None:
        return (
            ErrorCode.REQUEST_TIMED_OUT,
            "Request timed out waiting for leader to establish HWM and fence previous voter changes",
        )
    version = node.membership.kraft_version
    if version < 1:
        return (
            ErrorCode.UNSUPPORTED_VERSION,
            f"Cluster doesn't support {what} voter because the {KRAFT_VERSION} feature is {version}",
        )
    offset = node.membership.voters_offset
    if offset is None or offset >= leader.high_watermark:
        return (
            ErrorCode.REQUEST_TIMED_OUT,
            "Request timed out waiting for voters to commit the latest voter change at "
            f"{offset} with HWM {leader.high_watermark}",
        )
    return None


def _finish(node: Replica, leader: Leader, error: ErrorCode, message: str | None = None) -> None:
    """Answers the pending change, unless that was done when it was appended."""
    pending, leader.pending = leader.pending, None
    if pending is not None and not pending.answered:
        node.reply(pending.inbound.token, raft_messages.change_response(pending.inbound.request, error, message))


def committed(node: Replica, leader: Leader) -> None:
    """The high watermark moved."""
    if leader.high_watermark is None:
        return
    pending = leader.pending
    if pending is not None and pending.offset is not None and leader.high_watermark > pending.offset:
        _finish(node, leader, ErrorCode.NONE)
    offset = node.membership.voters_offset
    if offset is not None and leader.high_watermark > offset and not node.voters.is_voter(node.local):
        # A leader that was removed counts for nothing; it stays only until that is committed.
        leader.resign_requested = True


def expire(node: Replica, leader: Leader, now_ms: int) -> int:
    """Gives up on a change that takes too long; returns when the one under way does."""
    pending = leader.pending
    if pending is None:
        return NEVER_MS
    if now_ms >= pending.deadline_ms:
        _finish(node, leader, ErrorCode.REQUEST_TIMED_OUT)
        return NEVER_MS
    return pending.deadline_ms


def abandon(node: Replica, leader: Leader) -> None:
    """The leader is one no more."""
    _finish(node, leader, ErrorCode.NOT_LEADER_OR_FOLLOWER)


# -- requests


def _leader_for(node: Replica, inbound: VoterChange) -> Leader | None:
    """Us as the leader; otherwise the request is refused."""
    error = node.leader_error(node.epoch)
    if error is None and isinstance(node.role, Leader):
        return node.role
    node.reply(inbound.token, raft_messages.change_response(inbound.request, error or ErrorCode.NOT_LEADER_OR_FOLLOWER))
    return None


def add_voter(node: Replica, inbound: Inbound[AddRaftVoterRequest], now_ms: int) -> None:
    """The new voter is asked for its versions, and must have caught up, before it counts."""
    request = inbound.request
    leader = _leader_for(node, inbound)
    if leader is None:
        return
    key = ReplicaKey(request.voter_id, bytes(request.voter_directory_id))
    endpoints = metadata_partition.endpoints_of(request.listeners)
    address = endpoints.get(node.settings.listener)
    refused: tuple[ErrorCode, str] | None
    if key.id < 0 or key.directory_id == ZERO:
        refused = ErrorCode.INVALID_REQUEST, "Add voter request didn't include a valid voter"
    elif address is None:
        refused = (
            ErrorCode.INVALID_REQUEST,
            f"Add voter request didn't include the endpoint ({dict(endpoints)}) for the default listener "
            f"{node.settings.listener}",
        )
    else:
        expire(node, leader, now_ms)
        refused = _why_not(node, leader, "adding")
        if refused is None and key.id in node.voters.ids:
            refused = (
                ErrorCode.DUPLICATE_VOTER,
                f"The voter id for {key} is already part of the set of voters {node.voters.keys}.",
            )
        if refused is None and not node.connections.ready(key.id, now_ms):
            refused = ErrorCode.REQUEST_TIMED_OUT, f"New voter {key} is not ready to receive requests"
    if refused is not None or address is None:
        error, message = refused or (ErrorCode.INVALID_REQUEST, "")
        node.reply(inbound.token, raft_messages.change_response(request, error, message))
        return
    from pylogd.protocol.messages.api_versions import ApiVersionsRequest

    at_commit = request.ack_when_committed if inbound.version >= 1 else True
    deadline_ms = node.send(
        Node(key.id, *address),
        ApiVersionsRequest(client_software_name="pylogd", client_software_version="raft"),
        now_ms,
    )
    leader.pending = PendingChange(inbound, deadline_ms, VoterNode(key, endpoints), None, at_commit)


def versions_learned(node: Replica, source_id: int, response: ApiVersionsResponse, now_ms: int) -> bool:
    """The voter to be added has answered."""
    leader = node.role
    if not isinstance(leader, Leader):
        return True
    pending = leader.pending
    if pending is None or pending.adding is None or pending.offset is not None or pending.adding.key.id != source_id:
        return True
    key = pending.adding.key
    if response.error_code != ErrorCode.NONE:
        error = ErrorCode(response.error_code)
        message = f"Aborted add voter operation for since API_VERSIONS returned an error {error.name}"
        _finish(node, leader, ErrorCode.REQUEST_TIMED_OUT, message)
        return False
    versions = (0, 0)
    for feature in response.supported_features:
        if feature.name == KRAFT_VERSION:
            versions = (feature.min_version, feature.max_version)
    finalized = node.membership.kraft_version
    if not versions[0] <= finalized <= versions[1]:
        message = (
            f"Aborted add voter operation for {key} since the {KRAFT_VERSION} range (min: {versions[0]}, max: "
            f"{versions[1]}) doesn't support the finalized version {finalized}"
        )
        _finish(node, leader, ErrorCode.INVALID_REQUEST, message)
        return True
    if not leader.is_caught_up(key, now_ms):
        message = f"Aborted add voter operation for {key} since it is lagging behind"
        _finish(node, leader, ErrorCode.REQUEST_TIMED_OUT, message)
        return True
    voters = node.voters.add(pending.adding._replace(kraft_versions=versions))
    if voters is None:
        _finish(node, leader, ErrorCode.DUPLICATE_VOTER)
        return True
    pending.offset = _write(node, [_voters_record(voters)], now_ms)
    pending.deadline_ms = now_ms + node.timeouts.request_ms
    if not pending.answer_at_commit:
        # The replica that asks for itself must go on fetching for the commit to happen.
        pending.answered = True
        node.reply(pending.inbound.token, raft_messages.change_response(pending.inbound.request, ErrorCode.NONE))
    return True


def peer_failed(node: Replica, node_id: int) -> None:
    """A request to this peer did not get through."""
    leader = node.role
    if isinstance(leader, Leader) and leader.pending is not None:
        pending = leader.pending
        if pending.adding is not None and pending.offset is None and pending.adding.key.id == node_id:
            message = "Aborted add voter operation for since API_VERSIONS returned an error BROKER_NOT_AVAILABLE"
            _finish(node, leader, ErrorCode.REQUEST_TIMED_OUT, message)


def remove_voter(node: Replica, inbound: Inbound[RemoveRaftVoterRequest], now_ms: int) -> None:
    request = inbound.request
    leader = _leader_for(node, inbound)
    if leader is None:
        return
    key = ReplicaKey(request.voter_id, bytes(request.voter_directory_id))
    refused: tuple[ErrorCode, str] | None
    voters = None
    if key.id < 0 or key.directory_id == ZERO:
        refused = ErrorCode.INVALID_REQUEST, "Remove voter request didn't include a valid voter"
    else:
        expire(node, leader, now_ms)
        refused = _why_not(node, leader, "removing")
        if refused is None:
            voters = node.voters.remove(key)
            if voters is None:
                message = f"Cannot remove voter {key} from the set of voters {node.voters.keys}"
                refused = ErrorCode.VOTER_NOT_FOUND, message
    if refused is not None or voters is None:
        error, message = refused or (ErrorCode.VOTER_NOT_FOUND, "")
        node.reply(inbound.token, raft_messages.change_response(request, error, message))
        return
    offset = _write(node, [_voters_record(voters)], now_ms)
    leader.pending = PendingChange(inbound, now_ms + node.timeouts.request_ms, None, offset)


def update_voter(node: Replica, inbound: Inbound[UpdateRaftVoterRequest], now_ms: int) -> UpdateRaftVoterResponse:
    """A voter's own description of itself: a record with kraft.version 1, before that only remembered."""
    request = inbound.request
    refused = node.leader_error(request.current_leader_epoch)
    leader = node.role
    if refused is None and isinstance(leader, Leader):
        refused = _update(node, leader, request, now_ms)
    error = refused or ErrorCode.NONE
    return raft_messages.update_voter_response(node.leader_info, inbound.listener, error)


def _update(node: Replica, leader: Leader, request: UpdateRaftVoterRequest, now_ms: int) -> ErrorCode | None:
    key = ReplicaKey(request.voter_id, bytes(request.voter_directory_id))
    endpoints = metadata_partition.endpoints_of(request.listeners)
    low, high = request.kraft_version_feature.min_supported_version, request.kraft_version_feature.max_supported_version
    if key.id < 0 or key.directory_id == ZERO or node.settings.listener not in endpoints or not 0 <= low <= high:
        return ErrorCode.INVALID_REQUEST
    expire(node, leader, now_ms)
    version = node.membership.kraft_version
    if leader.pending is not None or leader.high_watermark is None:
        return ErrorCode.REQUEST_TIMED_OUT
    if version >= 1:
        offset = node.membership.voters_offset
        known = node.voters if offset is not None and offset < leader.high_watermark else None
    else:
        known = leader.volatile_voters
    if known is None:
        return ErrorCode.REQUEST_TIMED_OUT
    if not low <= version <= high:
        return ErrorCode.INVALID_REQUEST
    voters = known.update(VoterNode(key, endpoints, (low, high)), any_directory=version < 1)
    if voters is None:
        return ErrorCode.VOTER_NOT_FOUND
    if version >= 1:
        _write(node, [_voters_record(voters)], now_ms)
    else:
        leader.volatile_voters = voters
    leader.heard_from(key, now_ms)
    return None


def upgrade(node: Replica, version: int, now_ms: int, *, validate_only: bool = False) -> bool:
    """Raises kraft.version; False when there is nothing to do. KafkaError when it cannot be done."""
    leader = node.role
    if not isinstance(leader, Leader):
        raise KafkaError(ErrorCode.NOT_CONTROLLER, None)
    current = node.membership.kraft_version
    if current == version:
        return False
    if version < current:
        message = f"Invalid upgrade of {KRAFT_VERSION} from version {current} to {version} because it is a downgrade"
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message)
    voters = leader.volatile_voters
    if voters is None or voters.ids != node.voters.ids:
        message = f"Invalid upgrade of {KRAFT_VERSION} from version {current} to {version}"
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message)
    if any(not voter.kraft_versions[0] <= version <= voter.kraft_versions[1] for voter in voters) or any(
        key.directory_id == ZERO for key in voters.keys
    ):
        message = f"Invalid upgrade of {KRAFT_VERSION} to {version} because not all of the voters support it"
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message)
    if not validate_only:
        leader.volatile_voters = None
        _write(node, [_version_record(version), _voters_record(voters)], now_ms)
    return True
