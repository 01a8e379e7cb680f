"""Access control entries that match a filter.

3 adds user as a resource type.
"""

from __future__ import annotations

from pylogd.protocol.schema import Message, Struct
from pylogd.protocol.wire import Int8, Int16, Int32


class DescribeAclsRequest(Message, api_key=29, versions=(1, 3), flexible=2):
    resource_type_filter: Int8 = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: Int8 = 3
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DescribeAclsResponse(Message, api_key=29, versions=(1, 3), flexible=2):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
    resources: list[DescribeAclsResource] = []


class DescribeAclsResource(Struct):
    resource_type: Int8 = 0
    resource_name: str = ""
    pattern_type: Int8 = 3
    acls: list[AclDescription] = []


class AclDescription(Struct):
    principal: str = ""
    host: str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0
