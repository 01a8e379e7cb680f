"""The SCRAM mechanisms and iterations of users; never their secrets."""

from __future__ import annotations

from pylogd.protocol.schema import Message, Struct
from pylogd.protocol.wire import Int8, Int16, Int32


class DescribeUserScramCredentialsRequest(Message, api_key=50, versions=(0, 0), flexible=0):
    users: list[UserName] | None = []


class UserName(Struct):
    name: str = ""


class DescribeUserScramCredentialsResponse(Message, api_key=50, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
    results: list[DescribeUserScramCredentialsResult] = []


class DescribeUserScramCredentialsResult(Struct):
    user: str = ""
    error_code: Int16 = 0
    error_message: str | None = ""
    credential_infos: list[CredentialInfo] = []


class CredentialInfo(Struct):
    mechanism: Int8 = 0
    iterations: Int32 = 0
