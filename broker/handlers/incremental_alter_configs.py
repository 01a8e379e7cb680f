"""IncrementalAlterConfigs (key 44): set, delete, append to and subtract from single configs of resources.

0  topics, brokers, and levels of a broker's loggers
1  flexible
"""

from __future__ import annotations

from pylogd.broker.admin import config_admin
from pylogd.broker.admin.config_admin import BROKER_LOGGER_RESOURCE, BROKER_RESOURCE, DELETE, DONE, Result
from pylogd.broker.network.context import RequestContext
from pylogd.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


async def handle(ctx: RequestContext, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    responses = await config_admin.alter(ctx, request, _check, _response)
    return IncrementalAlterConfigsResponse(responses=responses)


def _check(ctx: RequestContext, resource: AlterConfigsResource, validate_only: bool) -> Result | None:
    config_admin.check_names(resource, lambda config: config.config_operation == DELETE)
    if resource.resource_type == BROKER_LOGGER_RESOURCE:
        config_admin.change_logger_levels(ctx, resource, validate_only)
        return DONE
    if resource.resource_type == BROKER_RESOURCE:
        if resource.resource_name:
            config_admin.check_node_id(ctx, resource.resource_name)
        values = config_admin.incremental_broker_values(ctx, resource)
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
