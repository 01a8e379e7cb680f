"""KRaft: a voter tells the leader its endpoints and its kraft.version range."""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import DEFAULT, Message, Struct, tagged
from pylogd.protocol.uuids import ZERO
from pylogd.protocol.wire import Int16, Int32, UInt16, Uuid


class UpdateRaftVoterRequest(Message, api_key=82, versions=(0, 0), flexible=0):
    cluster_id: str | None = ""
    current_leader_epoch: Int32 = 0
    voter_id: Int32 = 0
    voter_directory_id: Uuid = ZERO
    listeners: list[Listener] = []
    kraft_version_feature: KRaftVersionFeature = DEFAULT


class Listener(Struct):
    name: str = ""
    host: str = ""
    port: UInt16 = 0


class KRaftVersionFeature(Struct):
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


class UpdateRaftVoterResponse(Message, api_key=82, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    current_leader: Annotated[CurrentLeader, tagged(0, since=0)] = DEFAULT


class CurrentLeader(Struct):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1
    host: str = ""
    port: Int32 = 0
