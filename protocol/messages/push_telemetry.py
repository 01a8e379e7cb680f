"""A client pushes its metrics."""

from __future__ import annotations

from pylogd.protocol.schema import Message
from pylogd.protocol.uuids import ZERO
from pylogd.protocol.wire import Int8, Int16, Int32, Uuid


class PushTelemetryRequest(Message, api_key=72, versions=(0, 0), flexible=0):
    client_instance_id: Uuid = ZERO
    subscription_id: Int32 = 0
    terminating: bool = False
    compression_type: Int8 = 0
    metrics: bytes = b""


class PushTelemetryResponse(Message, api_key=72, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
