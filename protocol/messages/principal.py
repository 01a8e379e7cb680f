"""The principal that a forwarded request carries in its envelope, preceded by its version as an int16."""

from __future__ import annotations

from pylogd.protocol.schema import Message


class DefaultPrincipalData(Message, versions=(0, 0), flexible=0):
    type: str = ""
    name: str = ""
    token_authenticated: bool = False
