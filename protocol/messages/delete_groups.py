"""Delete groups that have no members."""

from __future__ import annotations

from pylogd.protocol.schema import Message, Struct
from pylogd.protocol.wire import Int16, Int32


class DeleteGroupsRequest(Message, api_key=42, versions=(0, 2), flexible=2):
    groups_names: list[str] = []


class DeleteGroupsResponse(Message, api_key=42, versions=(0, 2), flexible=2):
    throttle_time_ms: Int32 = 0
    results: list[DeletableGroupResult] = []


class DeletableGroupResult(Struct):
    group_id: str = ""
    error_code: Int16 = 0
