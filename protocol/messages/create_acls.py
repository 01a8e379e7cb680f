"""Add access control entries.

3 adds user as a resource type.
"""

from __future__ import annotations

from pylogd.protocol.schema import Message, Struct
from pylogd.protocol.wire import Int8, Int16, Int32


class CreateAclsRequest(Message, api_key=30, versions=(1, 3), flexible=2):
    creations: list[AclCreation] = []


class AclCreation(Struct):
    resource_type: Int8 = 0
    resource_name: str = ""
    resource_pattern_type: Int8 = 3
    principal: str = ""
    host: str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class CreateAclsResponse(Message, api_key=30, versions=(1, 3), flexible=2):
    throttle_time_ms: Int32 = 0
    results: list[AclCreationResult] = []


class AclCreationResult(Struct):
    error_code: Int16 = 0
    error_message: str | None = ""
