"""AlterConfigs (key 33): replace all configs of a resource; what is not named is removed. Superseded by key 44.

0  topics and brokers
1  the same
2  flexible
"""

from __future__ import annotations

from pylogd.broker.admin import config_admin
from pylogd.broker.admin.config_admin import BROKER_RESOURCE, Result
from pylogd.broker.network.context import RequestContext
from pylogd.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def handle(ctx: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    responses = await config_admin.alter(ctx, request, _check, _response)
    return AlterConfigsResponse(responses=responses)


def _check(ctx: RequestContext, resource: AlterConfigsResource, validate_only: bool) -> Result | None:
    config_admin.check_names(resource, lambda config: False)
    if resource.resource_type == BROKER_RESOURCE:
        values = {config.name: str(config.value) for config in resource.configs}
        config_admin.check_broker_change(ctx, resource.resource_name, values)
    else:
        config_admin.check_resource_type(resource)
    return None


def _response(resource: AlterConfigsResource, result: Result) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=int(result[0]),
        error_message=result[1],
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
