"""Remove the access control entries that match filters.

3 adds user as a resource type.
"""

from __future__ import annotations

from pylogd.protocol.schema import Message, Struct
from pylogd.protocol.wire import Int8, Int16, Int32


class DeleteAclsRequest(Message, api_key=31, versions=(1, 3), flexible=2):
    filters: list[DeleteAclsFilter] = []


class DeleteAclsFilter(Struct):
    resource_type_filter: Int8 = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: Int8 = 3
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DeleteAclsResponse(Message, api_key=31, versions=(1, 3), flexible=2):
    throttle_time_ms: Int32 = 0
    filter_results: list[DeleteAclsFilterResult] = []


class DeleteAclsFilterResult(Struct):
    error_code: Int16 = 0
    error_message: str | None = ""
    matching_acls: list[DeleteAclsMatchingAcl] = []


class DeleteAclsMatchingAcl(Struct):
    error_code: Int16 = 0
    error_message: str | None = ""
    resource_type: Int8 = 0
    resource_name: str = ""
    pattern_type: Int8 = 3
    principal: str = ""
    host: str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0
