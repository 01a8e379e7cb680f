"""One step of a SASL exchange."""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, ignorable, since
from pylogd.protocol.wire import Int16, Int64


class SaslAuthenticateRequest(Message, api_key=36, versions=(0, 2), flexible=2):
    auth_bytes: bytes = b""


class SaslAuthenticateResponse(Message, api_key=36, versions=(0, 2), flexible=2):
    error_code: Int16 = 0
    error_message: str | None = ""
    auth_bytes: bytes = b""
    session_lifetime_ms: Annotated[Int64, since(1), ignorable] = 0
