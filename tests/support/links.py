"""The network between brokers as a TCP proxy of ours: every link can be cut, in one direction or both, or made slow.

A gate listens in place of a node's listener, and the node advertises the gate's port. Who dials is told from /proc
(Linux): the dialled port alone says only to whom. A cut link is silent: bytes wait, and dials are taken and not
answered, as with packets that get lost. A gate whose node is down refuses dials, as the machine itself would.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from support.ports import free_ports

HOST = "127.0.0.1"
CHUNK_BYTES = 1 << 16
#: A gate's channel and the nodes at both ends, in the direction of the bytes.
Link = tuple[str, int, int]


_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_ANY = 0xFFFFFFFF


def inode_of(local_port: int, remote_port: int) -> str | None:
    """The socket of a connection of this machine, as /proc/<pid>/fd names it. Asked of the kernel (sock_diag(7)) for
    just this one: reading all of /proc/net/tcp takes so long that a busy proxy would hold its brokers up."""
    here = socket.inet_aton(HOST).ljust(16, b"\0")
    which = struct.pack(">HH", local_port, remote_port) + here + here + struct.pack("=III", 0, _ANY, _ANY)
    request = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, _ANY) + which
    header = struct.pack("=IHHII", 16 + len(request), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
        kernel.send(header + request)
        answer = kernel.recv(8192)
    if struct.unpack_from("=H", answer, 4)[0] != _SOCK_DIAG_BY_FAMILY:
        return None
    return f"socket:[{struct.unpack_from('=I', answer, 84)[0]}]"


def holds(pid: int, inode: str) -> bool:
    directory = f"/proc/{pid}/fd"
    try:
        names = os.listdir(directory)
    except (FileNotFoundError, ProcessLookupError):  # the process ended
        return False
    for name in names:
        try:
            if os.readlink(f"{directory}/{name}") == inode:
                return True
        except FileNotFoundError:  # closed meanwhile
            continue
    return False


class Gate:
    """Stands before one listener of one node."""

    def __init__(self, links: Links, channel: str, node_id: int, target: int) -> None:
        self._links = links
        self.channel, self.node_id, self.target = channel, node_id, target
        (self.port,) = free_ports(1)
        self._server: asyncio.Server | None = None

    def open(self) -> None:
        async def listen() -> None:
            if self._server is None:
                self._server = await asyncio.start_server(self._accepted, HOST, self.port, backlog=1024)

        self._links.do(listen())

    def close(self) -> None:
        async def shut() -> None:
            if self._server is not None:
                self._server.close()
                self._server = None

        self._links.do(shut())

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        links = self._links
        source = links.who_dialled(writer.get_extra_info("peername")[1], self.port)
        there, back = (self.channel, source, self.node_id), (self.channel, self.node_id, source)
        far_writer: asyncio.StreamWriter | None = None
        try:
            await links.passage(there)
            far_reader, far_writer = await asyncio.open_connection(HOST, self.target)
            ways = [
                asyncio.create_task(links.carry(there, reader, far_writer)),
                asyncio.create_task(links.carry(back, far_reader, writer)),
            ]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
        except OSError:
            pass  # the node is down: its peer sees a broken connection
        finally:
            for end in (writer, far_writer):
                if end is not None:
                    end.transport.abort()


class Links:
    """All gates of a cluster, on a thread of their own. `pid_of` tells the process of each node that runs."""

    def __init__(self, pid_of: Callable[[], dict[int, int]]) -> None:
        self._pid_of = pid_of
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._cut: set[Link] = set()
        self._delay_s: dict[Link, float] = {}
        self._changed = asyncio.Event()

    def do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def who_dialled(self, port: int, gate_port: int) -> int:
        """0 for nobody of the cluster."""
        inode = inode_of(port, gate_port)
        if inode is not None:
            for node_id, pid in self._pid_of().items():
                if holds(pid, inode):
                    return node_id
        return 0

    # -- what happens to the links

    def cut(self, *links: Link) -> None:
        self._change(cut={*links}, delay_s={})

    def slow(self, delay_s: float, *links: Link) -> None:
        self._change(cut=set(), delay_s=dict.fromkeys(links, delay_s))

    def mend(self) -> None:
        self._change(cut=set(), delay_s={})

    def _change(self, cut: set[Link], delay_s: dict[Link, float]) -> None:
        async def change() -> None:
            self._cut, self._delay_s = cut, delay_s
            self._changed.set()
            self._changed = asyncio.Event()

        self.do(change())

    # -- on the loop

    async def passage(self, link: Link) -> None:
        """Until bytes may go this way."""
        if link in self._delay_s:
            await asyncio.sleep(self._delay_s[link])
        while link in self._cut:
            await self._changed.wait()

    async def carry(self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK_BYTES):
            await self.passage(link)
            writer.write(data)
            await writer.drain()
        await self.passage(link)  # that an end has gone is also news

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
