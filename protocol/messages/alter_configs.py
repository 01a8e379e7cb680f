"""Replace the whole dynamic configuration of resources."""

from __future__ import annotations

from pylogd.protocol.schema import Message, Struct
from pylogd.protocol.wire import Int8, Int16, Int32


class AlterConfigsRequest(Message, api_key=33, versions=(0, 2), flexible=2):
    resources: list[AlterConfigsResource] = []
    validate_only: bool = False


class AlterConfigsResource(Struct):
    resource_type: Int8 = 0
    resource_name: str = ""
    configs: list[AlterableConfig] = []


class AlterableConfig(Struct):
    name: str = ""
    value: str | None = ""


class AlterConfigsResponse(Message, api_key=33, versions=(0, 2), flexible=2):
    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = []


class AlterConfigsResourceResponse(Struct):
    error_code: Int16 = 0
    error_message: str | None = ""
    resource_type: Int8 = 0
    resource_name: str = ""
