"""Members leave a classic group; from version 3 on several at once."""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, Struct, ignorable, since, until
from pylogd.protocol.wire import Int16, Int32


class LeaveGroupRequest(Message, api_key=13, versions=(0, 5), flexible=4):
    group_id: str = ""
    member_id: Annotated[str, until(2)] = ""
    members: Annotated[list[MemberIdentity], since(3)] = []


class MemberIdentity(Struct):
    member_id: str = ""
    group_instance_id: str | None = None
    reason: Annotated[str | None, since(5), ignorable] = None


class LeaveGroupResponse(Message, api_key=13, versions=(0, 5), flexible=4):
    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    error_code: Int16 = 0
    members: Annotated[list[MemberResponse], since(3)] = []


class MemberResponse(Struct):
    member_id: str = ""
    group_instance_id: str | None = ""
    error_code: Int16 = 0
