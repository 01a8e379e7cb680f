"""A connected TCP socket as a stream: byte chunks leave with `sendmsg`, file ranges with `os.sendfile`, in order.

uvloop offers no sendfile, and transports copy: that is why sockets are driven by `add_reader` and `add_writer`.

One turn of the loop moves at most TURN_BYTES per stream, so that a bulk consumer cannot stall its neighbours. A file
range pins its descriptor from `send` to its last byte. Ranges that are not in the page cache are read by a worker
first; the event loop never waits for a disk. What a long run of such data does to the cache: `catch_up.py`. How a
stream reads: `receiving.py`.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pylogd.runtime.files import ColdRead, FileRange
from pylogd.runtime.sockets import pagecache
from pylogd.runtime.sockets.catch_up import CatchUp
from pylogd.runtime.sockets.receiving import RETRY, Receiving
from pylogd.runtime.stream import INLINE_BYTES_MAX

if TYPE_CHECKING:
    from pylogd.runtime.sockets.stream_environment import StreamEnvironment
    from pylogd.runtime.stream import Chunk

#: Most bytes one stream moves in one turn of the event loop.
TURN_BYTES = 1 << 20
_IOV_MAX = 256
_JOIN_BYTES_MAX = 1 << 16
_READ_AHEAD_BYTES = 4 << 20
#: For how long the page cache is not asked again about a range: the kernel may take it in several turns.
_WARM_S = 0.2
_MSG_MORE: int = getattr(socket, "MSG_MORE", 0)


class _FileSend:
    """A file range on its way out."""

    __slots__ = ("fd", "position", "remaining", "source", "warm_before", "warm_until")

    def __init__(self, source: FileRange) -> None:
        self.source = source
        self.fd = source.acquire()
        self.position = source.position
        self.remaining = source.size
        #: Bytes below this position were in memory a moment ago, and count as in memory until this time.
        self.warm_until = 0
        self.warm_before = 0.0

    def warm(self, until: int, now: float) -> None:
        self.warm_until = until
        self.warm_before = now + _WARM_S


class SocketStream(Receiving):
    """One connected socket."""

    __slots__ = (
        "_catch_up",
        "_loading",
        "_queue",
        "_writing",
        "local_host",
        "local_port",
        "peer_host",
        "peer_port",
        "taken_at",
    )

    def __init__(self, environment: StreamEnvironment, sock: socket.socket) -> None:
        super().__init__(environment, sock)
        self._queue: deque[bytes | bytearray | memoryview | _FileSend] = deque()
        self._writing = False
        self._loading = False
        #: From the first data that was not in memory until the reader has caught up.
        self._catch_up: CatchUp | None = None
        self.taken_at = self._loop.time()
        self.peer_host, self.peer_port = socket_address(sock.getpeername())
        self.local_host, self.local_port = socket_address(sock.getsockname())

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def sending(self) -> bool:
        """Whether something is queued that the kernel has not taken yet."""
        return bool(self._queue)

    # -- sending

    def send(self, chunks: Sequence[Chunk]) -> bool:
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
                if error.errno not in RETRY:
                    self._lose(str(error))
                    return False
                sent = 0
            if sent == len(chunk):
                return True
            queue.append(memoryview(chunk)[sent:])
            self._wait_writable()
            return False
        for item in chunks:
            if isinstance(item, FileRange):
                queue.append(self._file_chunk(item))
            else:
                queue.append(item)
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
            if error.errno not in RETRY:
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
        if self._environment.pages.resident(head.fd, head.position, count):
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
            self._catch_up = CatchUp(self._environment.workers)
        self._catch_up.missed(end - max(head.position, head.warm_until))
        ahead = min(_READ_AHEAD_BYTES, head.remaining - count)
        job = self._environment.workers.offload(pagecache.load, head.fd, head.position, count, ahead)
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
        self._environment.streams.discard(self)
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


def socket_address(name: Any) -> tuple[str, int]:
    """Host and port of a socket name; an IPv4 peer of a dual-stack listener is shown as IPv4."""
    if not isinstance(name, tuple):
        return str(name or "local"), 0
    host: str = name[0]
    if host.startswith("::ffff:") and "." in host:
        host = host[7:]
    return host, name[1]
