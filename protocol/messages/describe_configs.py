"""The configuration of topics, brokers and other resources, with where each value comes from."""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, Struct, ignorable, since
from pylogd.protocol.wire import Int8, Int16, Int32


class DescribeConfigsRequest(Message, api_key=32, versions=(1, 4), flexible=4):
    resources: list[DescribeConfigsResource] = []
    include_synonyms: bool = False
    include_documentation: Annotated[bool, since(3)] = False


class DescribeConfigsResource(Struct):
    resource_type: Int8 = 0
    resource_name: str = ""
    configuration_keys: list[str] | None = []


class DescribeConfigsResponse(Message, api_key=32, versions=(1, 4), flexible=4):
    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResult] = []


class DescribeConfigsResult(Struct):
    error_code: Int16 = 0
    error_message: str | None = ""
    resource_type: Int8 = 0
    resource_name: str = ""
    configs: list[DescribeConfigsResourceResult] = []


class DescribeConfigsResourceResult(Struct):
    name: str = ""
    value: str | None = ""
    read_only: bool = False
    config_source: Int8 = -1
    is_sensitive: bool = False
    synonyms: list[DescribeConfigsSynonym] = []
    config_type: Annotated[Int8, since(3), ignorable] = 0
    documentation: Annotated[str | None, since(3), ignorable] = ""


class DescribeConfigsSynonym(Struct):
    name: str = ""
    value: str | None = ""
    source: Int8 = 0
