"""Remove the registration of a broker that is gone."""

from __future__ import annotations

from pylogd.protocol.schema import Message
from pylogd.protocol.wire import Int16, Int32


class UnregisterBrokerRequest(Message, api_key=64, versions=(0, 0), flexible=0):
    broker_id: Int32 = 0


class UnregisterBrokerResponse(Message, api_key=64, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
