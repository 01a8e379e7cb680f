"""Create a delegation token."""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, Struct, since
from pylogd.protocol.wire import Int16, Int32, Int64


class CreateDelegationTokenRequest(Message, api_key=38, versions=(1, 3), flexible=2):
    owner_principal_type: Annotated[str | None, since(3)] = ""
    owner_principal_name: Annotated[str | None, since(3)] = ""
    renewers: list[CreatableRenewers] = []
    max_lifetime_ms: Int64 = 0


class CreatableRenewers(Struct):
    principal_type: str = ""
    principal_name: str = ""


class CreateDelegationTokenResponse(Message, api_key=38, versions=(1, 3), flexible=2):
    error_code: Int16 = 0
    principal_type: str = ""
    principal_name: str = ""
    token_requester_principal_type: Annotated[str, since(3)] = ""
    token_requester_principal_name: Annotated[str, since(3)] = ""
    issue_timestamp_ms: Int64 = 0
    expiry_timestamp_ms: Int64 = 0
    max_timestamp_ms: Int64 = 0
    token_id: str = ""
    hmac: bytes = b""
    throttle_time_ms: Int32 = 0
