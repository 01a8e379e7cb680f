"""The receiving half of a socket stream: memory, and when it is read into.

It reads on readiness into memory it controls and hands a view of what has arrived to its receiver, which consumes whole
frames and leaves the rest.

All streams of a network read into one shared scratch buffer, which stays hot in the CPU's cache. A stream whose data
ends inside a frame moves that tail to a buffer of its own, which grows with the frame and is given back when it is
large or idle, so a thousand idle connections hold none. A frame's view stays valid as long as somebody holds a slice of
it: memory with live slices is replaced instead of overwritten (a bytearray refuses to be resized while it is exported,
which is how we can tell).
"""

from __future__ import annotations

import errno
import socket
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from pylogd.runtime.sockets.stream_environment import SCRATCH_BYTES

if TYPE_CHECKING:
    from pylogd.runtime.sockets.stream_environment import StreamEnvironment
    from pylogd.runtime.stream import Receiver

#: The first buffer of a stream that holds part of a small frame. A long one gets its memory as its bytes arrive, so
#: that a claim costs nothing: this much at first, then this many times what is there.
_OWN_BYTES_MIN = 1 << 14
_CLAIM_BYTES = 1 << 12
_GROWTH = 4
#: A larger buffer is not kept once it is empty.
_OWN_BYTES_KEPT = 5 << 18
#: Errors of a socket that only say: not now.
RETRY = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR)


class Receiving(ABC):
    """A connected socket, and what arrives on it."""

    __slots__ = (
        "_closed",
        "_delivering",
        "_end",
        "_environment",
        "_fd",
        "_loop",
        "_own",
        "_paused",
        "_reading",
        "_receiver",
        "_socket",
        "_start",
        "_wanted",
    )

    def __init__(self, environment: StreamEnvironment, sock: socket.socket) -> None:
        self._environment = environment
        self._loop = environment.loop
        self._socket = sock
        self._fd = sock.fileno()
        self._receiver: Receiver
        self._own: bytearray | None = None
        self._start = 0
        self._end = 0
        self._wanted = 0
        self._reading = False
        self._paused = False
        self._delivering = False
        self._closed = False

    def start(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._reading = True
        self._loop.add_reader(self._fd, self._readable)

    @property
    def buffered(self) -> int:
        """Bytes that have arrived and are not consumed."""
        return self._end - self._start

    def want(self, size: int) -> None:
        """Tell the stream how long the frame is that lies unfinished at the start of what was left."""
        self._wanted = size

    def pause(self) -> None:
        """Deliver nothing until `resume`. The peer's going is still noticed."""
        self._paused = True

    def resume(self) -> None:
        """Deliver what was left over, then what arrives."""
        if not self._paused or self._closed:
            return
        self._paused = False
        if not self._reading:
            self._reading = True
            self._loop.add_reader(self._fd, self._readable)
        if self._own is not None and self._start < self._end and not self._delivering:
            self._deliver_own(self._own)

    def shed(self) -> None:
        """Give back an empty buffer: called for idle streams."""
        if self._start == self._end:
            self._own = None

    def _readable(self) -> None:
        if self._paused:
            self._readable_while_paused()
            return
        own = self._own
        try:
            if own is None:
                scratch = self._environment.scratch
                got = self._socket.recv_into(scratch)
            elif self._end:
                with memoryview(own) as whole:
                    got = self._socket.recv_into(whole[self._end :])
            else:
                got = self._socket.recv_into(own)
        except OSError as error:
            if error.errno not in RETRY:
                self._lose(str(error))
            return
        if got == 0:
            self._lose(None)
            return
        if own is not None:
            self._end += got
            self._deliver_own(own)
            return
        self._delivering = True
        self._wanted = 0
        view = memoryview(scratch)
        start = self._receiver.received(view, 0, got)
        self._delivering = False
        if start < got and not self._closed:
            kept = bytearray(self._capacity(got - start))
            kept[: got - start] = view[start:got]
            self._own, self._start, self._end = kept, 0, got - start
        del view
        if _exported(scratch):
            self._environment.scratch = bytearray(SCRATCH_BYTES)

    def _deliver_own(self, own: bytearray) -> None:
        self._delivering = True
        view = memoryview(own)
        self._wanted = 0
        self._start = start = self._receiver.received(view, self._start, self._end)
        self._delivering = False
        del view
        if self._closed:
            return
        left = self._end - start
        if left == 0:
            self._start = self._end = 0
            if len(own) > _OWN_BYTES_KEPT or _exported(own):
                self._own = None
            return
        if start + max(self._wanted, 4) <= len(own) or (start == 0 and self._end < len(own)):
            return
        capacity = self._capacity(left)
        if capacity > len(own) or _exported(own):
            grown = bytearray(max(capacity, left))
            grown[:left] = own[start : self._end]
            self._own = grown
        else:
            own[:left] = own[start : self._end]
        self._start, self._end = 0, left

    def _capacity(self, have: int) -> int:
        """How much memory the unfinished frame gets now, given the bytes of it that are here."""
        wanted = max(self._wanted, have + 4, _OWN_BYTES_MIN)
        return wanted if wanted == _OWN_BYTES_MIN else min(wanted, max(_CLAIM_BYTES, _GROWTH * have))

    def _readable_while_paused(self) -> None:
        try:
            gone = self._socket.recv(1, socket.MSG_PEEK) == b""
        except OSError as error:
            if error.errno not in RETRY:
                self._lose(str(error))
            return
        if gone:
            self._lose(None)
        else:
            self._reading = False
            self._loop.remove_reader(self._fd)

    @abstractmethod
    def _lose(self, reason: str | None) -> None:
        """The connection is over, and the receiver hears of it."""


def _exported(buffer: bytearray) -> bool:
    """Whether somebody still holds a slice of this memory."""
    try:
        buffer.append(0)
    except BufferError:
        return True
    buffer.pop()
    return False
