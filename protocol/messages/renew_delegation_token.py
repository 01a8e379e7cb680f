"""Prolong a delegation token."""

from __future__ import annotations

from pylogd.protocol.schema import Message
from pylogd.protocol.wire import Int16, Int32, Int64


class RenewDelegationTokenRequest(Message, api_key=39, versions=(1, 2), flexible=2):
    hmac: bytes = b""
    renew_period_ms: Int64 = 0


class RenewDelegationTokenResponse(Message, api_key=39, versions=(1, 2), flexible=2):
    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0
