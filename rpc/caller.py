"""Who asks: carried by every request, from the connection it came in on to the controller that decides."""

from __future__ import annotations

from typing import NamedTuple

ANONYMOUS = "User:ANONYMOUS"


class Caller(NamedTuple):
    #: As `Type:name`.
    principal: str = ANONYMOUS
    client_id: str | None = None
    #: The client's address, also when a broker forwarded the request.
    host: str = ""
    #: The name of the listener the request came in on.
    listener: str = ""
    #: Whether the client authenticated with a delegation token.
    token_authenticated: bool = False
