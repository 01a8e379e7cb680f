"""Child processes for work that would hold the interpreter too long: spawned as `python -m <module>`.

Parent and child exchange frames over the child's standard input and output. A frame is a length (uint32, big endian)
and a pickled value; both ends are this program, so unpickling is safe. A child ends when its input ends, and on Linux
the kernel ends it with its parent.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import sys
from collections.abc import Callable
from struct import Struct
from typing import Any, BinaryIO

_LENGTH = Struct(">I")
_PR_SET_PDEATHSIG = 1


class ChildDied(Exception):
    """The child ended in the middle of a conversation."""


class Child:
    """A child process as its parent sees it. One conversation at a time."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, module: str) -> Child:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # a terminal's Ctrl-C is for the broker, which then ends the child
        )
        return cls(process)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    async def send(self, value: object) -> None:
        data = pickle.dumps(value)
        stream = self._process.stdin
        assert stream is not None
        try:
            stream.write(_LENGTH.pack(len(data)) + data)
            await stream.drain()
        except (ConnectionError, RuntimeError) as error:
            raise ChildDied(str(error)) from None

    async def receive(self) -> Any:
        stream = self._process.stdout
        assert stream is not None
        try:
            (size,) = _LENGTH.unpack(await stream.readexactly(_LENGTH.size))
            return pickle.loads(await stream.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError):
            raise ChildDied(f"child process {self.pid} ended unexpectedly") from None

    async def close(self) -> None:
        """Ends an idle child."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), 5)
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        if self.alive:
            try:
                self._process.kill()
            except ProcessLookupError:
                return
            await self._process.wait()


class Parent:
    """The parent as the child sees it: what it reads from and writes to."""

    def __init__(self, source: BinaryIO, sink: BinaryIO) -> None:
        self._source = source
        self._sink = sink

    def receive(self) -> Any:
        """EOFError when the parent has closed its end."""
        head = self._source.read(_LENGTH.size)
        if len(head) < _LENGTH.size:
            raise EOFError
        (size,) = _LENGTH.unpack(head)
        data = self._source.read(size)
        if len(data) < size:
            raise EOFError
        return pickle.loads(data)

    def send(self, value: object) -> None:
        data = pickle.dumps(value)
        self._sink.write(_LENGTH.pack(len(data)) + data)
        self._sink.flush()


def serve(handle: Callable[[Any, Parent], None]) -> None:
    """The main loop of a child: one `handle(request, parent)` after another until the parent hangs up."""
    _end_with_parent()
    os.nice(5)
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what somebody prints must not land between frames
    parent = Parent(os.fdopen(0, "rb"), sink)
    while True:
        try:
            request = parent.receive()
        except EOFError:
            return
        handle(request, parent)


def _end_with_parent() -> None:
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    before = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != before:  # it died between the two calls
        os._exit(1)
