"""Request and response headers, the structs before every body on the wire."""

from __future__ import annotations

from typing import Annotated

from pylogd.protocol.schema import Message, not_compact
from pylogd.protocol.wire import Int16, Int32


class RequestHeader(Message, versions=(1, 2), flexible=2):
    request_api_key: Int16 = 0
    request_api_version: Int16 = 0
    correlation_id: Int32 = 0
    client_id: Annotated[str | None, not_compact] = ""


class ResponseHeader(Message, versions=(0, 1), flexible=1):
    correlation_id: Int32 = 0
