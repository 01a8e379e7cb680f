"""The gate: one object that every request passes, whether it was decoded or recognised as a repetition.

In go the caller, the API, the resources that the request names, and its bytes. Out comes a decision: allowed, refused
with an error code, or allowed with a throttle time, which reaches the client in the reply. Requests and bytes are
counted on the way. Access control, quotas and metrics live behind the gate and nowhere else: whatever stands beside it
is circumvented by a template.

A template (`broker/network/templates.py`) answers requests like one that was admitted before without decoding them. It
remembers the generation of the gate under which it learnt. Whatever changes a decision changes the generation, and the
next request takes the full path, where the gate is asked again.

This gate lets everybody in.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from pylogd.protocol.api import ApiKey
from pylogd.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from pylogd.rpc.caller import Caller


class ResourceKind(IntEnum):
    """As Kafka numbers them."""

    TOPIC = 2
    GROUP = 3


#: What a request is about. A topic may be named by its id.
Resource = tuple[ResourceKind, "str | bytes"]


class Decision(NamedTuple):
    """Any code but NONE refuses the whole request."""

    code: ErrorCode = ErrorCode.NONE
    throttle_ms: int = 0


ALLOWED = Decision()


class Traffic:
    """What came in for one API."""

    __slots__ = ("bytes", "requests")

    def __init__(self) -> None:
        self.requests = 0
        self.bytes = 0


class Gate:
    """Lets everybody in, and counts."""

    def __init__(self) -> None:
        #: Whether it matters who sends how much, so that a throttle time may come out. Then repetitions are admitted
        #: one by one, and otherwise all that came together at once.
        self.meters = False
        #: Another one as soon as a decision that was given before might be another one now.
        self.generation = 0
        #: By API.
        self.traffic = [Traffic() for _ in range(max(ApiKey) + 1)]

    def admit(self, caller: Caller, api: ApiKey, resources: tuple[Resource, ...], size: int) -> Decision:
        """A request of `size` bytes."""
        traffic = self.traffic[api]
        traffic.requests += 1
        traffic.bytes += size
        return ALLOWED

    def admit_again(self, caller: Caller, api: ApiKey, size: int, requests: int = 1) -> int:
        """`requests` requests of `size` bytes together, like one that was admitted under this generation: their
        throttle time in ms."""
        traffic = self.traffic[api]
        traffic.requests += requests
        traffic.bytes += size
        return 0
