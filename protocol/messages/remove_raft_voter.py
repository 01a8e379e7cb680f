"""KRaft: remove a voter from the quorum."""

from __future__ import annotations

from pylogd.protocol.schema import Message
from pylogd.protocol.uuids import ZERO
from pylogd.protocol.wire import Int16, Int32, Uuid


class RemoveRaftVoterRequest(Message, api_key=81, versions=(0, 0), flexible=0):
    cluster_id: str | None = ""
    voter_id: Int32 = 0
    voter_directory_id: Uuid = ZERO


class RemoveRaftVoterResponse(Message, api_key=81, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
