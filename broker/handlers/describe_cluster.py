"""DescribeCluster: the brokers of the cluster.

Versions: 1 added the endpoint type (this listener has only brokers; controllers answer on theirs); 2 fenced brokers on
request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pylogd.broker.network.client_endpoints import broker_address
from pylogd.metadata.operations import CLUSTER_OPERATIONS
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages import describe_cluster as m

if TYPE_CHECKING:
    from pylogd.broker.network.context import RequestContext

BROKERS = 1
CONTROLLERS = 2


def handle(ctx: RequestContext, request: m.DescribeClusterRequest) -> m.DescribeClusterResponse:
    services = ctx.services
    if ctx.version >= 1 and request.endpoint_type != BROKERS:
        if request.endpoint_type == CONTROLLERS:
            return m.DescribeClusterResponse(
                error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
                error_message="The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type "
                "CONTROLLER",
            )
        return m.DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"Unsupported endpoint type {request.endpoint_type}",
        )
    response = m.DescribeClusterResponse(cluster_id=services.cluster_id)
    with_fenced = ctx.version >= 2 and request.include_fenced_brokers
    alive = []
    for broker in services.image.brokers.values():
        if broker.fenced and not with_fenced:
            continue
        address = broker_address(ctx, broker)
        if address is None:
            continue
        if not broker.fenced:
            alive.append(broker.id)
        host, port = address
        response.brokers.append(
            m.DescribeClusterBroker(
                broker_id=broker.id, host=host, port=port, rack=broker.rack, is_fenced=broker.fenced
            )
        )
    response.controller_id = services.broker_id if services.broker_id in alive else alive[0] if alive else -1
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response
