"""Which client metrics to push, how often, and how."""

from __future__ import annotations

from pylogd.protocol.schema import Message
from pylogd.protocol.uuids import ZERO
from pylogd.protocol.wire import Int8, Int16, Int32, Uuid


class GetTelemetrySubscriptionsRequest(Message, api_key=71, versions=(0, 0), flexible=0):
    client_instance_id: Uuid = ZERO


class GetTelemetrySubscriptionsResponse(Message, api_key=71, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    client_instance_id: Uuid = ZERO
    subscription_id: Int32 = 0
    accepted_compression_types: list[Int8] = []
    push_interval_ms: Int32 = 0
    telemetry_max_bytes: Int32 = 0
    delta_temporality: bool = False
    requested_metrics: list[str] = []
