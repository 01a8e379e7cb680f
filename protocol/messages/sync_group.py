"""The leader hands in the assignment of a classic group, everybody receives theirs.

5: the broker refuses a protocol type or name other than its own (KIP-559).
"""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, Struct, ignorable, since
from pylogd.protocol.wire import Int16, Int32


class SyncGroupRequest(Message, api_key=14, versions=(0, 5), flexible=4):
    group_id: str = ""
    generation_id: Int32 = 0
    member_id: str = ""
    group_instance_id: Annotated[str | None, since(3)] = None
    protocol_type: Annotated[str | None, since(5), ignorable] = None
    protocol_name: Annotated[str | None, since(5), ignorable] = None
    assignments: list[SyncGroupRequestAssignment] = []


class SyncGroupRequestAssignment(Struct):
    member_id: str = ""
    assignment: bytes = b""


class SyncGroupResponse(Message, api_key=14, versions=(0, 5), flexible=4):
    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    error_code: Int16 = 0
    protocol_type: Annotated[str | None, since(5), ignorable] = None
    protocol_name: Annotated[str | None, since(5), ignorable] = None
    assignment: bytes = b""
