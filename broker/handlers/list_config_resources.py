"""ListConfigResources (key 74): names of the resources that have, or can have, configs.

0  client metrics subscriptions only (as ListClientMetricsResources)
1  any types, chosen by the client; none means all
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pylogd.broker.network.context import RequestContext
from pylogd.metadata.image import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_TYPES = (GROUP_RESOURCE, CLIENT_METRICS_RESOURCE, BROKER_LOGGER_RESOURCE, BROKER_RESOURCE, TOPIC_RESOURCE)


def handle(ctx: RequestContext, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    supported = (CLIENT_METRICS_RESOURCE,) if ctx.version == 0 else _TYPES
    wanted = request.resource_types or supported
    if not set(wanted) <= set(supported):
        return ListConfigResourcesResponse(error_code=int(ErrorCode.UNSUPPORTED_VERSION), config_resources=[])
    resources = []
    for kind in _TYPES:
        if kind in wanted:
            names = _names(ctx.services.image, kind, ctx.caller.listener)
            resources += [ConfigResource(resource_name=name, resource_type=kind) for name in names]
    return ListConfigResourcesResponse(config_resources=resources)


def _names(image: Any, kind: int, listener: str) -> Iterable[str]:
    if kind == TOPIC_RESOURCE:
        return list(image.topics)
    if kind in (BROKER_RESOURCE, BROKER_LOGGER_RESOURCE):
        # The brokers a client on this listener could talk to.
        return [
            str(broker.id) for broker in image.brokers.values() if not broker.fenced and listener in broker.endpoints
        ]
    return [name for (resource_type, name), values in image.configs.items() if resource_type == kind and values]
