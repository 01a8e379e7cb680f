"""One connected socket as a byte stream: views of what arrives, chunks and file ranges that leave.

It reads on readiness into memory it controls and hands a view of what has arrived to its receiver, which consumes whole
frames and leaves the rest; it sends byte chunks (`sendmsg`) and file ranges (`os.sendfile`) in order. uvloop offers no
sendfile, and transports copy: that is why sockets are driven by `add_reader` and `add_writer`.

Reading memory. All streams of a `Network` read into one shared scratch buffer, which stays hot in the CPU's cache. A
stream whose data ends inside a frame moves that tail to a buffer of its own, which grows with the frame and is given
back when it is large or idle, so a thousand idle connections hold none. A frame's view stays valid as long as somebody
holds a slice of it: memory with live slices is replaced instead of overwritten (a bytearray refuses to be resized while
it is exported, which is how we can tell).

Sending. One turn of the loop moves at most TURN_BYTES per stream, so that a bulk consumer cannot stall its neighbours.
A file range pins its descriptor from `send` to its last byte. Ranges that are not in the page cache are read by a
worker first; the event loop never waits for a disk. What a long run of such data does to the cache: `catch_up.py`.

A simulated twin has the same methods over queues in memory; a TLS stream reads ranges with `FileRange.read` and writes
to the loop's transport.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from pylogd.runtime.files import ColdRead, FileRange
from pylogd.runtime.sockets import pagecache
from pylogd.runtime.sockets.catch_up import CatchUp

if TYPE_CHECKING:
    from pylogd.runtime.network import Network

#: Most bytes one stream moves in one turn of the event loop.
TURN_BYTES = 1 << 20
#: Smaller ranges are copied, so that a small reply leaves in one system call and one packet.
INLINE_BYTES_MAX = 1 << 14
SCRATCH_BYTES = 1 << 18
#: The first buffer of a stream that holds part of a small frame. A long one gets its memory as its bytes arrive, so
#: that a claim costs nothing: this much at first, then this many times what is there.
_OWN_BYTES_MIN = 1 << 14
_CLAIM_BYTES = 1 << 12
_GROWTH = 4
#: A larger buffer is not kept once it is empty.
_OWN_BYTES_KEPT = 5 << 18
_IOV_MAX = 256
_JOIN_BYTES_MAX = 1 << 16
_READ_AHEAD_BYTES = 4 << 20
#: For how long the page cache is not asked again about a range: the kernel may take it in several turns.
_WARM_S = 0.2
_MSG_MORE: int = getattr(socket, "MSG_MORE", 0)
_RETRY = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR)


class Receiver(Protocol):
    """What a stream talks to. Calls come from the event loop and never nest."""

    def received(self, view: memoryview, start: int, end: int) -> int:
        """Consume whole frames of view[start:end]; return the position of the first byte that is still needed.

        Only an unfinished frame (see `Stream.want`) or `Stream.pause` may leave bytes behind.
        """

    def drained(self) -> None:
        """Everything queued has been handed to the kernel."""

    def lost(self, reason: str | None) -> None:
        """The peer has gone (None: it closed in good order), or the socket failed. Called once, never after `close`."""


class _FileSend:
    """A file range on its way out."""

    __slots__ = ("fd", "position", "remaining", "source", "warm_before", "warm_until")

    def __init__(self, source: FileRange) -> None:
        self.source = source
        self.fd = source.acquire()
        self.position = source.position
        self.remaining = source.size
        #: Bytes before this position were in memory a moment ago, and count as such before this time.
        self.warm_until = 0
        self.warm_before = 0.0

    def warm(self, until: int, now: float) -> None:
        self.warm_until = until
        self.warm_before = now + _WARM_S


class Stream:
    """One connected socket."""

    __slots__ = (
        "_catch_up",
        "_closed",
        "_delivering",
        "_end",
        "_fd",
        "_loading",
        "_loop",
        "_network",
        "_own",
        "_paused",
        "_queue",
        "_reading",
        "_receiver",
        "_socket",
        "_start",
        "_wanted",
        "_writing",
        "local_host",
        "local_port",
        "peer_host",
        "peer_port",
        "taken_at",
    )

    def __init__(self, network: Network, sock: socket.socket) -> None:
        self._network = network
        self._loop = network.loop
        self._socket = sock
        self._fd = sock.fileno()
        self._receiver: Receiver
        self._own: bytearray | None = None
        self._start = 0
        self._end = 0
        self._wanted = 0
        self._queue: deque[bytes | bytearray | memoryview | _FileSend] = deque()
        self._reading = False
        self._paused = False
        self._delivering = False
        self._writing = False
        self._loading = False
        self._closed = False
        #: Since it sent data that was not in memory, until it has caught up.
        self._catch_up: CatchUp | None = None
        #: When the peer last made room for a reply that had to wait for it.
        self.taken_at = self._loop.time()
        self.peer_host, self.peer_port = socket_address(sock.getpeername())
        self.local_host, self.local_port = socket_address(sock.getsockname())

    def start(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._reading = True
        self._loop.add_reader(self._fd, self._readable)

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def sending(self) -> bool:
        """Whether something is queued that the kernel has not taken yet."""
        return bool(self._queue)

    @property
    def buffered(self) -> int:
        """Bytes that have arrived and are not consumed."""
        return self._end - self._start

    # -- receiving

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
                scratch = self._network._scratch
                got = self._socket.recv_into(scratch)
            elif self._end:
                with memoryview(own) as whole:
                    got = self._socket.recv_into(whole[self._end :])
            else:
                got = self._socket.recv_into(own)
        except OSError as error:
            if error.errno not in _RETRY:
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
            self._network._scratch = bytearray(SCRATCH_BYTES)

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
            if error.errno not in _RETRY:
                self._lose(str(error))
            return
        if gone:
            self._lose(None)
        else:
            self._reading = False
            self._loop.remove_reader(self._fd)

    # -- sending

    def send(self, chunks: list[Any]) -> bool:
        """Queue the chunks behind what is queued and send what the kernel takes now. True when all has been taken."""
        if self._closed:
            return False
        queue = self._queue
        if not queue and len(chunks) == 1 and not isinstance(chunks[0], FileRange):
            # The common case: one small reply, or several encoded into one buffer.
            chunk = chunks[0]
            try:
                sent = self._socket.send(chunk)
            except OSError as error:
                if error.errno not in _RETRY:
                    self._lose(str(error))
                    return False
                sent = 0
            if sent == len(chunk):
                return True
            queue.append(memoryview(chunk)[sent:])
            self._wait_writable()
            return False
        for chunk in chunks:
            if isinstance(chunk, FileRange):
                queue.append(self._file_chunk(chunk))
            else:
                queue.append(chunk)
        if self._writing or self._loading:
            return False
        self._flush()
        return not queue

    def _file_chunk(self, source: FileRange) -> bytes | _FileSend:
        size = source.size
        if size > INLINE_BYTES_MAX:
            return _FileSend(source)
        try:
            return source.file.pread_nowait(size, source.position, size)
        except ColdRead:
            return _FileSend(source)  # a worker reads it first

    def _flush(self) -> None:
        queue = self._queue
        budget = TURN_BYTES
        try:
            while queue:
                if budget <= 0:
                    self._wait_writable()
                    return
                head = queue[0]
                if isinstance(head, _FileSend):
                    count = min(head.remaining, budget)
                    if not self._warm(head, count):
                        return
                    sent = os.sendfile(self._fd, head.fd, head.position, count)
                    if sent == 0:
                        # The frame's length is already on its way: the peer can only be told by hanging up.
                        self._lose("the log was truncated under a reply being sent")
                        return
                    head.position += sent
                    head.remaining -= sent
                    budget -= sent
                    if head.remaining == 0:
                        queue.popleft()
                        head.source.release()
                else:
                    budget -= self._send_bytes()
        except OSError as error:
            if error.errno not in _RETRY:
                self._lose(str(error))
                return
            self._wait_writable()
            return
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)

    def _send_bytes(self) -> int:
        """Send the byte chunks at the head of the queue with one call; what the kernel leaves stays queued."""
        queue = self._queue
        vector: list[bytes | bytearray | memoryview] = []
        more = 0
        for chunk in queue:
            if isinstance(chunk, _FileSend):
                # Hold the header back until the data behind it fills the packet.
                more = _MSG_MORE
                break
            if len(vector) == _IOV_MAX:
                break
            vector.append(chunk)
        if len(vector) == 1:
            taken = self._socket.send(vector[0], more)
        elif sum(map(len, vector)) <= _JOIN_BYTES_MAX:
            # Copying a little is cheaper than handing the kernel a vector.
            taken = self._socket.send(b"".join(vector), more)
        else:
            taken = self._socket.sendmsg(vector, (), more)
        sent = taken
        for chunk in vector:
            size = len(chunk)
            if sent < size:
                queue[0] = memoryview(chunk)[sent:]
                break
            sent -= size
            queue.popleft()
        return taken

    def _wait_writable(self) -> None:
        if not self._writing:
            self._writing = True
            self._loop.add_writer(self._fd, self._writable)

    def _writable(self) -> None:
        self.taken_at = self._loop.time()
        self._flush()
        if not self._queue and not self._closed:
            self._receiver.drained()

    # -- cold data

    def _warm(self, head: _FileSend, count: int) -> bool:
        """Whether the next `count` bytes can be sent without waiting for a disk; if not, a worker fetches them."""
        end = head.position + count
        if end <= head.warm_until and self._loop.time() < head.warm_before:
            return True
        if self._network.pages.resident(head.fd, head.position, count):
            if self._catch_up is not None:
                start = max(head.position, head.warm_until)
                if self._catch_up.found(head.source, start, end - start):
                    self._catch_up = None
            head.warm(end, self._loop.time())
            return True
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)
        self._loading = True
        if self._catch_up is None:
            self._catch_up = CatchUp(self._network.workers)
        self._catch_up.missed(end - max(head.position, head.warm_until))
        ahead = min(_READ_AHEAD_BYTES, head.remaining - count)
        job = self._network.workers.offload(pagecache.load, head.fd, head.position, count, ahead)
        job.add_done_callback(lambda done: self._warmed(head, head.position, count, done))
        return False

    def _warmed(self, head: _FileSend, position: int, count: int, done: asyncio.Future[int]) -> None:
        self._loading = False
        failure = None if done.cancelled() else done.exception()
        if self._closed:
            self._drop_queue()
            return
        if failure is not None:
            self._lose(f"reading the log failed: {failure}")
            return
        head.warm(position + count, self._loop.time())
        if self._catch_up is not None:
            self._catch_up.leave(head.source, position, count)
        self._flush()
        if not self._queue and not self._closed:
            self._receiver.drained()

    # -- closing

    def close(self) -> None:
        """Hang up now; what is queued is lost. The receiver is not told."""
        if self._closed:
            return
        self._closed = True
        if self._reading:
            self._loop.remove_reader(self._fd)
        if self._writing:
            self._loop.remove_writer(self._fd)
        self._own = None
        if not self._loading:
            self._drop_queue()
        if self._catch_up is not None:
            self._catch_up.end()
        self._network._streams.discard(self)
        self._socket.close()

    def _drop_queue(self) -> None:
        while self._queue:
            chunk = self._queue.popleft()
            if isinstance(chunk, _FileSend):
                chunk.source.release()

    def _lose(self, reason: str | None) -> None:
        if not self._closed:
            self.close()
            self._receiver.lost(reason)


def _exported(buffer: bytearray) -> bool:
    """Whether somebody still holds a slice of this memory."""
    try:
        buffer.append(0)
    except BufferError:
        return True
    buffer.pop()
    return False


def socket_address(name: Any) -> tuple[str, int]:
    """Host and port of a socket name; an IPv4 peer of a dual-stack listener is shown as IPv4."""
    if not isinstance(name, tuple):
        return str(name or "local"), 0
    host: str = name[0]
    if host.startswith("::ffff:") and "." in host:
        host = host[7:]
    return host, name[1]
