"""The network's twin in memory: processes that listen and connect, over the machines and wires of `internet.py`.

What a TCP connection promises is kept, and no more: bytes arrive in order and once. Across connections nothing is
promised: a request that was sent again over a new connection may overtake the first. Besides the faults of the
internet, `break_connections` ends established connections; what was under way on them is lost.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pylogd.runtime.files import FileRange
from pylogd.runtime.network import Listener, Network
from pylogd.runtime.simulated.internet import RESET, Internet, Parcel, Wire
from pylogd.runtime.simulated.simulated_loop import SimulatedLoop
from pylogd.runtime.simulated.simulated_workers import SimulatedWorkers

if TYPE_CHECKING:
    from pylogd.runtime.stream import Chunk, Receiver, Stream

#: What the kernels at both ends hold for a reader that does not read.
_WINDOW_BYTES = 1 << 16


class SimulatedStream:
    """One end of a connection."""

    wire: Wire
    peer: SimulatedStream
    _receiver: Receiver

    def __init__(self, network: SimulatedNetwork, peer: tuple[str, int], local: tuple[str, int]) -> None:
        self.network = network
        self.peer_host, self.peer_port = peer
        self.local_host, self.local_port = local
        self._loop = network.loop
        self._kernel: deque[bytes] = deque()
        self._eof = False
        self._reason: str | None = None
        self._started = False
        self._scheduled = False
        self._under_way = 0
        self._own: bytearray | None = None
        self._paused = True
        self._delivering = False
        self._closed = False
        self.taken_at = self._loop.time()
        network.streams[self] = None

    def start(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._started = True
        self._paused = False
        self._wake()

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def sending(self) -> bool:
        return self._under_way > _WINDOW_BYTES

    @property
    def buffered(self) -> int:
        return len(self._own or b"")

    # -- receiving

    def want(self, size: int) -> None:
        """Every frame gets memory of its own here, however long."""

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        if not self._paused or self._closed:
            return
        self._paused = False
        if self._own is not None and not self._delivering:
            self._deliver(b"")
        self._wake()

    def shed(self) -> None:
        """Nothing empty is held."""

    def arrived(self, item: bytes | str | None) -> None:
        """The kernel has it; the process hears of it in its own time."""
        if self._closed:
            return
        if isinstance(item, bytes):
            self._kernel.append(item)
        else:
            self._eof = True
            self._reason = item
        self._wake()

    def _wake(self) -> None:
        if self._started and not self._scheduled and (self._kernel or self._eof):
            self._scheduled = True
            self._loop.call_soon(self._readable)

    def _readable(self) -> None:
        self._scheduled = False
        if self._closed:
            return
        if self._kernel and not self._paused:
            data = b"".join(self._kernel)
            self._kernel.clear()
            self.peer.taken(len(data))
            self._deliver(data)
        if self._eof and not self._kernel and not self._closed:
            self._lose(self._reason)

    def _deliver(self, data: bytes) -> None:
        # Fresh memory every time: whoever keeps a slice of it keeps what was there.
        own = bytearray(data) if self._own is None else self._own + data
        self._own = None
        self._delivering = True
        start = self._receiver.received(memoryview(own), 0, len(own))
        self._delivering = False
        if start < len(own) and not self._closed:
            self._own = own[start:]

    # -- sending

    def send(self, chunks: Sequence[Chunk]) -> bool:
        if self._closed or self.network.loop.dead:
            return False
        size = sum(map(len, chunks))
        if size:
            self._under_way += size
            in_memory = [chunk for chunk in chunks if not isinstance(chunk, FileRange)]
            self.wire.put(b"".join(in_memory) if len(in_memory) == len(chunks) else Parcel(chunks))
        return not self.sending

    def cut_short(self) -> None:
        """The frame's length is already on its way: the peer can only be told by hanging up."""
        self.wire.put(RESET)
        if not self.network.loop.dead:
            self._loop.call_soon(self._lose, "the log was truncated under a reply being sent")

    def taken(self, size: int) -> None:
        """The peer has read this much."""
        waited = self.sending
        self._under_way -= size
        self.taken_at = self._loop.time()
        if waited and not self.sending and not self._closed:
            self._loop.call_soon(self._writable)

    def _writable(self) -> None:
        if not self._closed and not self.sending:
            self._receiver.drained()

    # -- the end

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._own = None
        self._kernel.clear()
        self.network.streams.pop(self, None)
        if not self._eof and not self.network.loop.dead:
            self.wire.put(RESET if self.network.loop.world.chance.random() < 0.2 else None)

    def _lose(self, reason: str | None) -> None:
        if not self._closed:
            self.close()
            self._receiver.lost(reason)

    def reset(self) -> None:
        """The wire breaks, or this end's process is gone: the other end will hear of it."""
        self.wire.put(RESET)


class SimulatedListener(Listener):
    def __init__(
        self, network: SimulatedNetwork, host: str, port: int, accepted: Callable[[SimulatedStream], None]
    ) -> None:
        self.network = network
        self.host = host
        self.port = port
        self._take = accepted
        self._backlog: deque[SimulatedStream] = deque()
        self._accepting = False
        self._closed = False

    def resume(self) -> None:
        if not self._closed:
            self._accepting = True
            if self._backlog:
                self.network.loop.call_soon(self._accept)

    def pause(self) -> None:
        self._accepting = False

    def close(self) -> None:
        self._closed = True
        self._accepting = False
        listeners = self.network.machine.listeners
        if listeners.get(self.port) is self:
            del listeners[self.port]
        for stream in self._backlog:
            stream.close()
        self._backlog.clear()

    def arrived(self, stream: SimulatedStream) -> None:
        self._backlog.append(stream)
        self.network.loop.call_soon(self._accept)

    def _accept(self) -> None:
        while self._backlog and self._accepting:
            self._take(self._backlog.popleft())


class SimulatedNetwork(Network):
    """The sockets of one process on a machine. `loop` is the loop of that process."""

    loop: SimulatedLoop

    def __init__(
        self, internet: Internet, machine: str, loop: SimulatedLoop, workers: SimulatedWorkers | None = None
    ) -> None:
        self.internet = internet
        self.machine = internet.machine(machine)
        self.loop = loop
        self.workers = workers or SimulatedWorkers(loop, internet.world.chance)
        #: In the order they were made (a dict as an ordered set).
        self.streams: dict[SimulatedStream, None] = {}

    def listen(self, host: str, port: int, accepted: Callable[[Any], None], backlog: int = 50) -> Listener:
        port = port or self.internet.next_port()
        if port in self.machine.listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        listener = self.machine.listeners[port] = SimulatedListener(self, host, port, accepted)
        return listener

    async def connect(self, host: str, port: int) -> Stream:
        future: asyncio.Future[Stream] = self.loop.create_future()
        self._dial(host, port, future)
        return await future

    def _dial(self, host: str, port: int, future: asyncio.Future[Stream]) -> None:
        internet, loop = self.internet, self.loop
        world = internet.world
        client = self.machine.name

        def syn() -> None:
            if future.done() or loop.dead:
                return
            machine = internet.machine(host)
            if internet.is_cut(client, host) or not machine.powered:
                world.after(0.2 + world.chance.random(), syn)
                return
            listener = machine.listeners.get(port)
            if listener is None:
                world.after(internet.delay_s(), refused)
                return
            near = SimulatedStream(self, (host, port), (client, internet.next_port()))
            far = SimulatedStream(listener.network, (client, near.local_port), (host, port))
            near.wire, far.wire = Wire(internet, near, far), Wire(internet, far, near)
            near.peer, far.peer = far, near
            listener.arrived(far)
            world.after(internet.delay_s(), lambda: loop.call_soon(established, near))

        def refused() -> None:
            if not loop.dead:
                loop.call_soon(fail)

        def fail() -> None:
            if not future.done():
                future.set_exception(ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED)))

        def established(stream: SimulatedStream) -> None:
            if future.done():
                stream.close()
            else:
                future.set_result(stream)

        world.after(internet.delay_s(), syn)

    def close(self) -> None:
        for stream in list(self.streams):
            stream.close()

    # -- what happens to it

    def killed(self) -> None:
        """The process is gone; its machine tells everybody who is connected."""
        self.lost_power()
        for stream in self.streams:
            stream.reset()

    def lost_power(self) -> None:
        """The process is gone, and nobody is told."""
        for port in [port for port, listener in self.machine.listeners.items() if listener.network is self]:
            del self.machine.listeners[port]

    def break_connections(self, machine: str) -> None:
        """Connections with another machine end now, for both sides."""
        for stream in list(self.streams):
            if stream.peer_host == machine:
                stream.reset()
                stream.peer.reset()
