"""Fetching the log: what a follower asks for and whom, and the fetches a leader lets wait until there is news.

A Fetch tells the leader that everything before its offset is on stable storage here, so none leaves while the log is
not flushed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pylogd.controller.raft import raft_messages
from pylogd.controller.raft.connections import NEVER_MS
from pylogd.controller.raft.leader import Leader
from pylogd.controller.raft.log_view import match
from pylogd.controller.raft.roles import Follower
from pylogd.controller.raft.voters import Node, ReplicaKey
from pylogd.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from pylogd.controller.raft.inbound import Inbound
    from pylogd.controller.raft.replica import Replica
    from pylogd.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse
    from pylogd.protocol.schema import Message


#: Most bytes of records in one answer, whatever is asked for; a larger batch goes alone.
ANSWER_BYTES_MAX = 8 << 20


# -- the follower


def poll_follower(node: Replica, role: Follower, now_ms: int) -> int:
    if node.shutting_down:
        return NEVER_MS
    if not node.may_run:
        return _poll_observer(node, role, now_ms)
    if now_ms >= role.fetch_deadline_ms:
        node.become_prospective(now_ms)
        return now_ms
    if now_ms >= role.update_voter_at_ms:
        if _should_update_voter(node, role):
            settings = node.settings
            request = raft_messages.update_voter_request(
                settings.cluster_id, role.epoch, node.local, settings.endpoints, settings.kraft_versions
            )
            deadline_ms = _send_to_leader(node, role, request, now_ms, role.voter_updated)
            return min(deadline_ms, role.fetch_deadline_ms)
        role.voter_updated(now_ms)
    return min(_fetch_from_best(node, role, now_ms), role.fetch_deadline_ms)


def _should_update_voter(node: Replica, role: Follower) -> bool:
    """With kraft.version 1 when the log has us with other endpoints; before, once for every leader, which keeps what it
    is told in memory until the version is raised."""
    if node.membership.kraft_version >= 1:
        return node.voters.needs_update(node.local_voter)
    return not role.has_updated_leader


def _poll_observer(node: Replica, role: Follower, now_ms: int) -> int:
    settings = node.settings
    wants_to_vote = settings.can_vote and settings.auto_join and node.membership.kraft_version >= 1
    # The leader takes nobody who lags behind.
    if not wants_to_vote or node.high_watermark is None or node.log.end_offset < node.high_watermark:
        return _fetch_from_best(node, role, now_ms)
    if now_ms < role.join_at_ms:
        return min(_fetch_from_best(node, role, now_ms), role.join_at_ms)
    former = node.voters.get(node.local.id)
    request: Message
    if former is not None:
        # This id votes with a directory that is gone: it has to leave before we can come in.
        request = raft_messages.remove_voter_request(settings.cluster_id, former.key)
    else:
        timeout_ms = node.timeouts.request_ms
        request = raft_messages.add_voter_request(settings.cluster_id, node.local, settings.endpoints, timeout_ms)
    return _send_to_leader(node, role, request, now_ms, role.asked_to_join)


def _send_to_leader(node: Replica, role: Follower, request: Message, now_ms: int, sent: Callable[[int], None]) -> int:
    leader = role.leader_node(node.settings.listener)
    ready = leader is not None and node.connections.ready(leader.id, now_ms)
    deadline_ms = node.send(leader, request, now_ms)
    if ready:
        sent(now_ms)
    return deadline_ms


def _fetch_from_best(node: Replica, role: Follower, now_ms: int) -> int:
    """The leader, as long as it answers; otherwise anybody who may know of another one."""
    connections = node.connections
    leader = role.leader_node(node.settings.listener)
    if leader is None:
        return fetch_from_bootstrap(node, now_ms)
    if connections.timed_out(leader.id, now_ms):
        connections.reset(leader.id)
        return fetch_from_bootstrap(node, now_ms)
    if connections.backing_off(leader.id, now_ms):
        return min(fetch_from_bootstrap(node, now_ms), connections.ready_at_ms(leader.id, now_ms))
    if connections.any_in_flight(now_ms):
        return max(connections.bootstrap_at_ms(now_ms), now_ms + 1)
    return _fetch(node, leader, now_ms)


def fetch_from_bootstrap(node: Replica, now_ms: int) -> int:
    """Asks any bootstrap server, which answers with records or with the leader's address."""
    server = node.connections.ready_bootstrap(now_ms)
    if server is None:
        return max(node.connections.bootstrap_at_ms(now_ms), now_ms + 1)
    return _fetch(node, server, now_ms)


def _fetch(node: Replica, server: Node, now_ms: int) -> int:
    if not node.durable:
        return NEVER_MS  # the end of the flush is an event
    role, settings = node.role, node.settings
    request: Message
    if isinstance(role, Follower) and role.snapshot is not None and server.id == role.leader_id:
        limit = settings.fetch_snapshot_bytes_max
        request = raft_messages.fetch_snapshot_request(
            settings.cluster_id, role.epoch, node.local, role.snapshot, role.snapshot_bytes, limit
        )
    else:
        request = raft_messages.fetch_request(
            settings.cluster_id,
            role.epoch,
            node.local,
            node.end,
            node.high_watermark,
            settings.fetch_bytes_max,
            node.timeouts.fetch_wait_ms_max,
        )
    return node.send(server, request, now_ms)


# -- the leader


class WaitingFetches:
    """Fetches that had nothing to return yet, until something is appended or committed, or their time is up."""

    __slots__ = ("_waiting", "dirty")

    def __init__(self) -> None:
        self._waiting: list[tuple[int, Inbound[FetchRequest], FetchPartition]] = []
        #: something was appended or committed since they were looked at
        self.dirty = False

    def add(self, inbound: Inbound[FetchRequest], partition: FetchPartition, deadline_ms: int) -> None:
        self._waiting.append((deadline_ms, inbound, partition))

    @property
    def deadline_ms(self) -> int:
        return min((entry[0] for entry in self._waiting), default=NEVER_MS)

    def retry(self, node: Replica, now_ms: int) -> None:
        """Answers those with news and those whose time is up."""
        if not self._waiting or not (self.dirty or now_ms >= self.deadline_ms):
            self.dirty = False
            return
        self.dirty = False
        waiting, self._waiting = self._waiting, []
        for deadline_ms, inbound, partition in waiting:
            response, news = fetch_answer(node, inbound, partition)
            if news or now_ms >= deadline_ms:
                node.reply(inbound.token, response)
            else:
                self._waiting.append((deadline_ms, inbound, partition))

    def fail(self, node: Replica, error: ErrorCode) -> None:
        waiting, self._waiting = self._waiting, []
        for _, inbound, _ in waiting:
            response = raft_messages.fetch_response(
                node.leader_info, inbound.listener, inbound.version, error, node.log.start_offset
            )
            node.reply(inbound.token, response)


def fetch_answer(
    node: Replica, inbound: Inbound[FetchRequest], partition: FetchPartition
) -> tuple[FetchResponse, bool]:
    """The leader's answer as of now, and whether there is anything in it that is worth sending at once."""
    role, log = node.role, node.log
    assert isinstance(role, Leader)
    found = match(log, partition.fetch_offset, partition.last_fetched_epoch)
    limit = min(inbound.request.max_bytes, ANSWER_BYTES_MAX)
    records = log.read(partition.fetch_offset, limit) if found.valid else b""
    response = raft_messages.fetch_response(
        node.leader_info,
        inbound.listener,
        inbound.version,
        ErrorCode.NONE,
        log.start_offset,
        role.high_watermark,
        found,
        records,
    )
    known = -1 if role.high_watermark is None else role.high_watermark
    return response, bool(records) or not found.valid or partition.high_watermark < known


def fetched(
    node: Replica, leader: Leader, inbound: Inbound[FetchRequest], partition: FetchPartition, now_ms: int
) -> None:
    """Counts a replica's progress, if its log is a prefix of ours."""
    request = inbound.request
    replica_id = request.replica_state.replica_id if inbound.version >= 15 else request.replica_id
    key = ReplicaKey(replica_id, bytes(partition.replica_directory_id))
    if key.id == node.local.id:
        return
    if match(node.log, partition.fetch_offset, partition.last_fetched_epoch).valid and leader.fetched(
        key, partition.fetch_offset, node.log.end_offset, now_ms
    ):
        node.committed_more(leader)
