"""A broker forwards a request to the controller, with the principal and address of the client."""

from __future__ import annotations

from pylogd.protocol.schema import Message
from pylogd.protocol.wire import Int16


class EnvelopeRequest(Message, api_key=58, versions=(0, 0), flexible=0):
    request_data: bytes = b""
    request_principal: bytes | None = b""
    client_host_address: bytes = b""


class EnvelopeResponse(Message, api_key=58, versions=(0, 0), flexible=0):
    response_data: bytes | None = None
    error_code: Int16 = 0
