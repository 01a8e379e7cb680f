"""GetTelemetrySubscriptions (key 71): which metrics a client should push, and how often (KIP-714).

Not advertised, because no receiver of the metrics is configured; a client that asks anyway is answered as Kafka does.
"""

from __future__ import annotations

from pylogd.broker.admin.client_attributes import client_attributes
from pylogd.broker.admin.telemetry import COMPRESSION_TYPES
from pylogd.broker.network.context import RequestContext
from pylogd.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)


def handle(ctx: RequestContext, request: GetTelemetrySubscriptionsRequest) -> GetTelemetrySubscriptionsResponse:
    telemetry = ctx.services.telemetry
    instance = telemetry.subscribe(client_attributes(ctx), request.client_instance_id)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance.id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=list(COMPRESSION_TYPES),
        push_interval_ms=instance.interval_ms,
        telemetry_max_bytes=telemetry.max_bytes,
        delta_temporality=True,
        requested_metrics=instance.metrics,
    )
