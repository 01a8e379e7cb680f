"""What a connected stream is to those who use it, and what it tells them. Whoever talks over a connection knows only
these protocols.

`sockets/socket_stream.py` is the stream of a plain TCP socket, `simulated/simulated_network.py` has its twin over
queues in memory. A TLS stream will be another one: it reads ranges with `FileRange.read`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pylogd.runtime.files import FileRange

    #: What can be sent.
    Chunk = bytes | bytearray | memoryview | FileRange

#: Smaller ranges are copied, so that a small reply leaves in one system call and one packet.
INLINE_BYTES_MAX = 1 << 14


class Receiver(Protocol):
    """What a stream talks to. Calls come from the event loop and never nest."""

    def received(self, view: memoryview, start: int, end: int) -> int:
        """Consume whole frames of view[start:end]; return the position of the first byte that is still needed.

        Only an unfinished frame (see `Stream.want`) or `Stream.pause` may leave bytes behind. A frame's view stays
        valid as long as somebody holds a slice of it.
        """

    def drained(self) -> None:
        """Everything queued has been sent."""

    def lost(self, reason: str | None) -> None:
        """The peer has gone (None: it closed in good order), or the connection failed. Called once, never after
        `close`."""


class Stream(Protocol):
    """One connection to a peer: views of what arrives, chunks and file ranges that leave."""

    peer_host: str
    peer_port: int
    local_host: str
    local_port: int
    #: When the peer last made room for a reply that had to wait for it, in seconds of the event loop.
    taken_at: float

    def start(self, receiver: Receiver) -> None:
        """Deliver to `receiver` from now on. Called once."""

    @property
    def closed(self) -> bool: ...

    @property
    def sending(self) -> bool:
        """Whether something is queued that the peer's side has not taken yet."""

    @property
    def buffered(self) -> int:
        """Bytes that have arrived and are not consumed."""

    # -- receiving

    def want(self, size: int) -> None:
        """Tell the stream how long the frame is that lies unfinished at the start of what was left."""

    def pause(self) -> None:
        """Deliver nothing until `resume`. The peer's going is still noticed."""

    def resume(self) -> None:
        """Deliver what was left over, then what arrives."""

    def shed(self) -> None:
        """Give back an empty buffer: called for idle streams."""

    # -- sending

    def send(self, chunks: Sequence[Chunk]) -> bool:
        """Queue the chunks behind what is queued and send what can leave now. True when all has been taken."""

    def close(self) -> None:
        """Hang up now; what is queued is lost. The receiver is not told."""
