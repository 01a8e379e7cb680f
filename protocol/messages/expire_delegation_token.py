"""Let a delegation token end at a given time, or at once."""

from __future__ import annotations

from pylogd.protocol.schema import Message
from pylogd.protocol.wire import Int16, Int32, Int64


class ExpireDelegationTokenRequest(Message, api_key=40, versions=(1, 2), flexible=2):
    hmac: bytes = b""
    expiry_time_period_ms: Int64 = 0


class ExpireDelegationTokenResponse(Message, api_key=40, versions=(1, 2), flexible=2):
    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0
