"""PushTelemetry (key 72): a client's metrics (KIP-714), checked and dropped while no receiver is configured."""

from __future__ import annotations

from pylogd.broker.admin.client_attributes import client_attributes
from pylogd.broker.network.context import RequestContext
from pylogd.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse


def handle(ctx: RequestContext, request: PushTelemetryRequest) -> PushTelemetryResponse:
    ctx.services.telemetry.push(client_attributes(ctx), request)
    return PushTelemetryResponse()
