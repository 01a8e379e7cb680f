"""What the core wants done after an event, in which order.

The order is the contract that makes it safe:

1. `hard_state` is on stable storage before anything else here happens. A vote that is forgotten could be given twice.
2. `sends` and `replies` leave after that, in any order; each may be lost.
3. `flush` may run at any time, also in the background; `RaftNode.flushed` is told when it is done. Until then the core
   tells nobody that it has those records: a follower does not fetch behind them, a leader does not count them.

What the core wrote to the log while it handled the event is in the log already, not yet flushed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pylogd.controller.raft.voters import Node, ReplicaKey
from pylogd.protocol.schema import Message


class HardState(NamedTuple):
    """What must survive a restart: the epoch, its leader if known, the vote given in it."""

    epoch: int = 0
    leader_id: int | None = None
    voted: ReplicaKey | None = None


class Flush(NamedTuple):
    """A wish for durability up to `end_offset`. A truncation since then (`generation`) makes its completion void."""

    end_offset: int
    generation: int


class Send(NamedTuple):
    correlation_id: int
    destination: Node
    request: Message


class Reply(NamedTuple):
    token: Any
    response: Message


class Output:
    __slots__ = ("deadline_ms", "flush", "hard_state", "high_watermark", "replies", "role_changed", "sends")

    def __init__(self) -> None:
        self.hard_state: HardState | None = None
        self.flush: Flush | None = None
        self.sends: list[Send] = []
        self.replies: list[Reply] = []
        #: set when it moved
        self.high_watermark: int | None = None
        #: the role, its epoch or its leader is another one than before
        self.role_changed = False
        #: when `tick` must be called at the latest
        self.deadline_ms = 0


class NotLeader(Exception):
    """An append on a replica that does not lead, or no longer in the epoch it was meant for."""


class RaftError(Exception):
    """Something happened that the protocol excludes; going on could lose committed records."""
