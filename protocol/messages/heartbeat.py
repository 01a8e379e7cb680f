"""A member of a classic group is alive."""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, ignorable, since
from pylogd.protocol.wire import Int16, Int32


class HeartbeatRequest(Message, api_key=12, versions=(0, 4), flexible=4):
    group_id: str = ""
    generation_id: Int32 = 0
    member_id: str = ""
    group_instance_id: Annotated[str | None, since(3)] = None


class HeartbeatResponse(Message, api_key=12, versions=(0, 4), flexible=4):
    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    error_code: Int16 = 0
