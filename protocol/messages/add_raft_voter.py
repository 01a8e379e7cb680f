"""KRaft: add a voter to the quorum."""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, Struct, since
from pylogd.protocol.uuids import ZERO
from pylogd.protocol.wire import Int16, Int32, UInt16, Uuid


class AddRaftVoterRequest(Message, api_key=80, versions=(0, 1), flexible=0):
    cluster_id: str | None = ""
    timeout_ms: Int32 = 0
    voter_id: Int32 = 0
    voter_directory_id: Uuid = ZERO
    listeners: list[Listener] = []
    ack_when_committed: Annotated[bool, since(1)] = True


class Listener(Struct):
    name: str = ""
    host: str = ""
    port: UInt16 = 0


class AddRaftVoterResponse(Message, api_key=80, versions=(0, 1), flexible=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
