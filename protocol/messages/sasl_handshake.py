"""Choose the SASL mechanism. Version 1: the tokens then travel in SaslAuthenticate, not raw."""

from __future__ import annotations

from pylogd.protocol.schema import Message
from pylogd.protocol.wire import Int16


class SaslHandshakeRequest(Message, api_key=17, versions=(0, 1)):
    mechanism: str = ""


class SaslHandshakeResponse(Message, api_key=17, versions=(0, 1)):
    error_code: Int16 = 0
    mechanisms: list[str] = []
