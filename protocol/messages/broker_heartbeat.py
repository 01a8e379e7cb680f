"""A broker is alive, wants to be unfenced, or to shut down."""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, tagged
from pylogd.protocol.wire import Int16, Int32, Int64, Uuid


class BrokerHeartbeatRequest(Message, api_key=63, versions=(0, 2), flexible=0):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    current_metadata_offset: Int64 = 0
    want_fence: bool = False
    want_shut_down: bool = False
    offline_log_dirs: Annotated[list[Uuid], tagged(0, since=1)] = []
    cordoned_log_dirs: Annotated[list[Uuid] | None, tagged(1, since=2)] = None


class BrokerHeartbeatResponse(Message, api_key=63, versions=(0, 2), flexible=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool = False
