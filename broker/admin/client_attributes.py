"""What a telemetry subscription may ask of a client before it matches (KIP-714)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pylogd.broker.network.context import RequestContext


def client_attributes(ctx: RequestContext) -> dict[str, str]:
    connection = ctx.connection
    return {
        "client_id": ctx.caller.client_id or "",
        "client_software_name": connection.client_software_name,
        "client_software_version": connection.client_software_version,
        "client_source_address": connection.peer_host,
        "client_source_port": str(connection.peer_port),
    }
