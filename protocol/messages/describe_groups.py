"""State and members of classic groups.

6 answers GROUP_ID_NOT_FOUND where older versions describe a dead group.
"""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, Struct, ignorable, since
from pylogd.protocol.wire import Int16, Int32


class DescribeGroupsRequest(Message, api_key=15, versions=(0, 6), flexible=5):
    groups: list[str] = []
    include_authorized_operations: Annotated[bool, since(3)] = False


class DescribeGroupsResponse(Message, api_key=15, versions=(0, 6), flexible=5):
    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    groups: list[DescribedGroup] = []


class DescribedGroup(Struct):
    error_code: Int16 = 0
    error_message: Annotated[str | None, since(6)] = None
    group_id: str = ""
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: list[DescribedGroupMember] = []
    authorized_operations: Annotated[Int32, since(3)] = -0x80000000


class DescribedGroupMember(Struct):
    member_id: str = ""
    group_instance_id: Annotated[str | None, since(4), ignorable] = None
    client_id: str = ""
    client_host: str = ""
    member_metadata: bytes = b""
    member_assignment: bytes = b""
