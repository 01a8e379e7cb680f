"""The resources that have a configuration.

Version 0 lists client metrics resources only.
"""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, Struct, ignorable, since
from pylogd.protocol.wire import Int8, Int16, Int32


class ListConfigResourcesRequest(Message, api_key=74, versions=(0, 1), flexible=0):
    resource_types: Annotated[list[Int8], since(1)] = []


class ListConfigResourcesResponse(Message, api_key=74, versions=(0, 1), flexible=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: list[ConfigResource] = []


class ConfigResource(Struct):
    resource_name: str = ""
    resource_type: Annotated[Int8, since(1), ignorable] = 16
