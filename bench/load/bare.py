"""What the operating system allows, without a broker: a server that does nothing but sendfile, and a loop that does
nothing but write and fsync."""

from __future__ import annotations

import os
import selectors
import socket
import struct
import time
from collections.abc import Generator
from typing import Any

Result = dict[str, Any]
Work = Generator[None, None, Result]


def sendfile_server(path: str, reply_bytes: int, seconds: float) -> Work:
    """Answers every request frame, whatever it asks, with a header and the next part of the file."""
    listener = socket.create_server(("127.0.0.1", 0))
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size // reply_bytes * reply_bytes
        # The port reaches the client through a file beside the data: the protocol of a load has no place for it.
        with open(path + ".port", "w") as out:
            out.write(str(listener.getsockname()[1]))
        yield
        selector = selectors.DefaultSelector()
        selector.register(listener, selectors.EVENT_READ, None)
        served = 0
        cpu = time.process_time()
        deadline = time.perf_counter() + seconds
        while time.perf_counter() < deadline:
            for key, _ in selector.select(0.1):
                if key.data is None:
                    connection, _ = listener.accept()
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    selector.register(connection, selectors.EVENT_READ, [0])
                    continue
                connection, state = key.fileobj, key.data  # type: ignore[assignment]
                try:
                    if not connection.recv(65_536):
                        raise ConnectionResetError
                    connection.sendall(struct.pack(">i", reply_bytes), socket.MSG_MORE)
                    position, end = state[0], state[0] + reply_bytes
                    while position < end:
                        position += os.sendfile(connection.fileno(), file.fileno(), position, end - position)
                except ConnectionError:  # the client has seen enough
                    selector.unregister(connection)
                    connection.close()
                    continue
                state[0] = end % size
                served += reply_bytes
    return {"bytes": served, "cpu_seconds": time.process_time() - cpu}


def sendfile_client(path: str, connections: int, reply_bytes: int, seconds: float) -> Work:
    """The reading side of `raw.fetch`, against the bare server."""
    with open(path + ".port") as file:
        port = int(file.read())
    sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(connections)]
    request = struct.pack(">i", 96) + bytes(96)  # as long as a Fetch of one partition
    buffer = memoryview(bytearray(reply_bytes + (2 << 20)))
    yield
    started = time.perf_counter()
    deadline = started + seconds
    moved = 0
    for each in sockets:
        each.sendall(request)
    while time.perf_counter() < deadline:
        for each in sockets:
            have, need = 0, 4
            while have < need:
                have += each.recv_into(buffer[have:])
                if need == 4 and have >= 4:
                    need = 4 + struct.unpack_from(">i", buffer)[0]
            moved += have
            each.sendall(request)
    return {"bytes": moved, "seconds": time.perf_counter() - started}


def write_and_fsync(path: str, record_bytes: int, seconds: float) -> Work:
    """One write and one fsync for each request, one after the other."""
    record = b"x" * record_bytes
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    yield
    started = time.perf_counter()
    deadline = started + seconds
    count = 0
    while time.perf_counter() < deadline:
        os.write(descriptor, record)
        os.fsync(descriptor)
        count += 1
    elapsed = time.perf_counter() - started
    os.close(descriptor)
    os.unlink(path)
    return {"requests": count, "seconds": elapsed}
