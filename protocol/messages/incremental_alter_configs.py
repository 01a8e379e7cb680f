"""Set, delete, append to or subtract from single configuration keys."""

from __future__ import annotations

from pylogd.protocol.schema import Message, Struct
from pylogd.protocol.wire import Int8, Int16, Int32


class IncrementalAlterConfigsRequest(Message, api_key=44, versions=(0, 1), flexible=1):
    resources: list[AlterConfigsResource] = []
    validate_only: bool = False


class AlterConfigsResource(Struct):
    resource_type: Int8 = 0
    resource_name: str = ""
    configs: list[AlterableConfig] = []


class AlterableConfig(Struct):
    name: str = ""
    config_operation: Int8 = 0
    value: str | None = ""


class IncrementalAlterConfigsResponse(Message, api_key=44, versions=(0, 1), flexible=1):
    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = []


class AlterConfigsResourceResponse(Struct):
    error_code: Int16 = 0
    error_message: str | None = ""
    resource_type: Int8 = 0
    resource_name: str = ""
