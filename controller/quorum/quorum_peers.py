"""The other nodes of the quorum: requests to them, and what their silence or refusal tells."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from pylogd.controller.raft.output import Send
from pylogd.controller.raft.voters import Node
from pylogd.protocol.errors import ErrorCode
from pylogd.rpc.peer import PeerError
from pylogd.runtime.clock import Clock

logger = logging.getLogger(__name__)

REFUSALS_APART_MS = 100
#: How long a refused dial tells that a voter is down: longer than the pauses between two dials of those that are.
_REFUSED_S = 5.0

Address = tuple[str, int]


class QuorumPeer(Protocol):
    """A connection to another node: one answer, or one failure, for every request."""

    def send(
        self, request: Any, handler: Callable[[Any, PeerError | None], None], *, timeout_s: float | None = None
    ) -> None: ...

    def close(self) -> None: ...


#: host, port -> connection, which opens itself when it is used
Connect = Callable[[str, int], QuorumPeer]


class Asker(Protocol):
    """On whose behalf peers are asked: the driver of this node."""

    @property
    def leader_id(self) -> int | None: ...

    @property
    def leader_address(self) -> Address | None: ...

    @property
    def follows(self) -> bool: ...

    def peer_answered(self, node_id: int, correlation_id: int, response: Any) -> None: ...

    def peer_failed(self, node_id: int, correlation_id: int, error: ErrorCode) -> None: ...

    def peer_refused(self) -> None:
        """Nobody listens where a peer was dialled."""

    def leader_unreachable(self, leader_id: int) -> None:
        """There is evidence that the leader's process has gone."""


class LeaderEvidence:
    """Whether the leader's process has gone, from what its connection shows: it broke, and two dials at least 100 ms
    apart were refused since. Silence is no evidence: it may be the network."""

    __slots__ = ("_broken", "_refused_ms")

    def __init__(self) -> None:
        self._broken = False
        self._refused_ms: int | None = None

    def answered(self) -> None:
        self._broken = False
        self._refused_ms = None

    def failed(self, refused: bool, had_answered: bool, now_ms: int) -> bool:
        """A request to the leader failed; True when that completes the evidence."""
        if not refused:
            self._broken, self._refused_ms = had_answered, None
            return False
        if self._refused_ms is None:
            self._refused_ms = now_ms
        if not self._broken or now_ms - self._refused_ms < REFUSALS_APART_MS:
            return False
        self.answered()
        return True


class QuorumPeers:
    """Connections by address; one that is not used any more (a voter moved) is closed with the others at the end.
    Without `connect` there is no way to anybody."""

    def __init__(self, asker: Asker, connect: Connect | None, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self._asker = asker
        self._connect = connect
        self._clock = clock
        self._loop = loop
        self._by_address: dict[Address, QuorumPeer] = {}
        self._evidence = LeaderEvidence()
        #: Where nobody listened at the last dial, and when that was.
        self._refused: dict[Address, float] = {}

    def send(self, send: Send, timeout_s: float) -> None:
        """Asks; the asker is told once, with the answer or that there is none."""
        answered = partial(self._answered, send)
        peer = self._peer(send.destination)
        if peer is None:
            self._loop.call_soon(answered, None, PeerError("no way to reach it"))
        else:
            peer.send(send.request, answered, timeout_s=timeout_s)

    def _peer(self, node: Node) -> QuorumPeer | None:
        if self._connect is None:
            return None
        address = (node.host, node.port)
        peer = self._by_address.get(address)
        if peer is None:
            peer = self._by_address[address] = self._connect(*address)
        return peer

    def _answered(self, send: Send, response: Any, failure: PeerError | None) -> None:
        asker, node_id = self._asker, send.destination.id
        address = (send.destination.host, send.destination.port)
        to_leader = address == asker.leader_address
        if failure is None:
            self._refused.pop(address, None)
            if to_leader:
                self._evidence.answered()
            asker.peer_answered(node_id, send.correlation_id, response)
            return
        logger.debug("quorum: no answer from node %d: %s", node_id, failure)
        if failure.refused:
            self._refused[address] = self._loop.time()
            asker.peer_refused()
        had_answered = asker.follows
        error = ErrorCode.UNSUPPORTED_VERSION if failure.unsupported else ErrorCode.BROKER_NOT_AVAILABLE
        asker.peer_failed(node_id, send.correlation_id, error)
        leader_id, now_ms = asker.leader_id, self._clock.monotonic_ms()
        if to_leader and leader_id is not None and self._evidence.failed(failure.refused, had_answered, now_ms):
            logger.info("quorum: the leader, node %d, has gone", leader_id)
            asker.leader_unreachable(leader_id)

    def is_down(self, address: Address) -> bool:
        """Whether nobody listened there a moment ago."""
        since = self._loop.time() - _REFUSED_S
        return self._refused.get(address, since) > since

    def close(self) -> None:
        peers, self._by_address = self._by_address, {}
        self._connect = None
        for peer in peers.values():
            peer.close()
