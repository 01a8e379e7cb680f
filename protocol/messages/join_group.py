"""A member of a classic group joins or rejoins.

4: a new member is first answered MEMBER_ID_REQUIRED with its id, and must join again with it. 9: the leader may be
told to skip its assignment (KIP-814).
"""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, Struct, ignorable, nullable, since
from pylogd.protocol.wire import Int16, Int32


class JoinGroupRequest(Message, api_key=11, versions=(0, 9), flexible=6):
    group_id: str = ""
    session_timeout_ms: Int32 = 0
    rebalance_timeout_ms: Annotated[Int32, since(1), ignorable] = -1
    member_id: str = ""
    group_instance_id: Annotated[str | None, since(5)] = None
    protocol_type: str = ""
    protocols: list[JoinGroupRequestProtocol] = []
    reason: Annotated[str | None, since(8), ignorable] = None


class JoinGroupRequestProtocol(Struct):
    name: str = ""
    metadata: bytes = b""


class JoinGroupResponse(Message, api_key=11, versions=(0, 9), flexible=6):
    throttle_time_ms: Annotated[Int32, since(2), ignorable] = 0
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: Annotated[str | None, since(7), ignorable] = None
    protocol_name: Annotated[str | None, nullable(since=7)] = ""
    leader: str = ""
    skip_assignment: Annotated[bool, since(9)] = False
    member_id: str = ""
    members: list[JoinGroupResponseMember] = []


class JoinGroupResponseMember(Struct):
    member_id: str = ""
    group_instance_id: Annotated[str | None, since(5), ignorable] = None
    metadata: bytes = b""
