"""Where a client reaches a broker: the endpoint of the listener it came in on.

When nothing is advertised (`advertised.listeners` is not set), this broker is wherever the client has just reached it:
the local address of its connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pylogd.broker.network.context import RequestContext
    from pylogd.metadata.registrations import Broker


def broker_address(ctx: RequestContext, broker: Broker) -> tuple[str, int] | None:
    """Host and port of `broker` on the client's listener; None when it has no such listener."""
    endpoint = broker.endpoints.get(ctx.caller.listener)
    if endpoint is None:
        return None
    if broker.id == ctx.services.broker_id and ctx.services.config["advertised.listeners"] is None:
        return ctx.connection.local_host, ctx.connection.local_port
    return endpoint.host, endpoint.port


def alive_broker_address(ctx: RequestContext, broker_id: int) -> tuple[str, int] | None:
    """Like `broker_address`, and None also for a broker that is unknown or fenced."""
    broker = ctx.services.image.brokers.get(broker_id)
    if broker is None or broker.fenced:
        return None
    return broker_address(ctx, broker)


def add_leader_endpoint(ctx: RequestContext, leader: int, endpoints: dict[int, Any], struct: type[Any]) -> None:
    """Add the leader's address on the client's own listener, if it is alive and has one."""
    if leader in endpoints:
        return
    address = alive_broker_address(ctx, leader)
    if address is not None:
        host, port = address
        endpoints[leader] = struct(node_id=leader, host=host, port=port, rack=ctx.services.image.brokers[leader].rack)
