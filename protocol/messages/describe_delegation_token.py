"""The delegation tokens of some owners."""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, Struct, since
from pylogd.protocol.wire import Int16, Int32, Int64


class DescribeDelegationTokenRequest(Message, api_key=41, versions=(1, 3), flexible=2):
    owners: list[DescribeDelegationTokenOwner] | None = []


class DescribeDelegationTokenOwner(Struct):
    principal_type: str = ""
    principal_name: str = ""


class DescribeDelegationTokenResponse(Message, api_key=41, versions=(1, 3), flexible=2):
    error_code: Int16 = 0
    tokens: list[DescribedDelegationToken] = []
    throttle_time_ms: Int32 = 0


class DescribedDelegationToken(Struct):
    principal_type: str = ""
    principal_name: str = ""
    token_requester_principal_type: Annotated[str, since(3)] = ""
    token_requester_principal_name: Annotated[str, since(3)] = ""
    issue_timestamp: Int64 = 0
    expiry_timestamp: Int64 = 0
    max_timestamp: Int64 = 0
    token_id: str = ""
    hmac: bytes = b""
    renewers: list[DescribedDelegationTokenRenewer] = []


class DescribedDelegationTokenRenewer(Struct):
    principal_type: str = ""
    principal_name: str = ""
