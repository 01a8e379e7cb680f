"""The groups that this broker coordinates."""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, Struct, ignorable, since
from pylogd.protocol.wire import Int16, Int32


class ListGroupsRequest(Message, api_key=16, versions=(0, 5), flexible=3):
    states_filter: Annotated[list[str], since(4)] = []
    types_filter: Annotated[list[str], since(5)] = []


class ListGroupsResponse(Message, api_key=16, versions=(0, 5), flexible=3):
    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    error_code: Int16 = 0
    groups: list[ListedGroup] = []


class ListedGroup(Struct):
    group_id: str = ""
    protocol_type: str = ""
    group_state: Annotated[str, since(4), ignorable] = ""
    group_type: Annotated[str, since(5), ignorable] = ""
