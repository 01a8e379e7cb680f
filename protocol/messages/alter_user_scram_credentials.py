"""Set or remove SCRAM credentials of users."""

from __future__ import annotations

from pylogd.protocol.schema import Message, Struct
from pylogd.protocol.wire import Int8, Int16, Int32


class AlterUserScramCredentialsRequest(Message, api_key=51, versions=(0, 0), flexible=0):
    deletions: list[ScramCredentialDeletion] = []
    upsertions: list[ScramCredentialUpsertion] = []


class ScramCredentialDeletion(Struct):
    name: str = ""
    mechanism: Int8 = 0


class ScramCredentialUpsertion(Struct):
    name: str = ""
    mechanism: Int8 = 0
    iterations: Int32 = 0
    salt: bytes = b""
    salted_password: bytes = b""


class AlterUserScramCredentialsResponse(Message, api_key=51, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32 = 0
    results: list[AlterUserScramCredentialsResult] = []


class AlterUserScramCredentialsResult(Struct):
    user: str = ""
    error_code: Int16 = 0
    error_message: str | None = ""
