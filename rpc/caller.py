"""Who asks: carried by every request, from the connection it came in on to the controller that decides."""

from __future__ import annotations

from typing import NamedTuple

ANONYMOUS = "User:ANONYMOUS"


class Caller(NamedTuple):
    #: As `Type:name`.
    principal: str = ANONYMOUS
    client_id: str | None = None
    #: The address the request came from; of a forwarded one, the client's.
    host: str = ""
    #: The name of the listener it came in on.
    listener: str = ""
    #: Whether it proved who it is with a delegation token.
    token_authenticated: bool = False
