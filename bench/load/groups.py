"""Load of consumer groups over raw sockets: offset commits, and members that rebalance. Frames are packed by hand, in
the last versions before flexible encoding."""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections.abc import Generator
from typing import Any

from bench.load.raw import connect, percentiles, read_frame

Result = dict[str, Any]
Work = Generator[None, None, Result]

OFFSET_COMMIT, FIND_COORDINATOR, JOIN_GROUP, SYNC_GROUP, HEARTBEAT = 8, 10, 11, 14, 12
REBALANCE_IN_PROGRESS = 27
SESSION_MS = 60_000
METADATA = struct.pack(">hih5sii", 1, 1, 5, b"bench", -1, 0)


def _string(text: str | None) -> bytes:
    if text is None:
        return struct.pack(">h", -1)
    raw = text.encode()
    return struct.pack(">h", len(raw)) + raw


def _bytes(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def _frame(key: int, version: int, body: bytes) -> bytes:
    header = struct.pack(">hhi", key, version, 7) + _string("bench")
    return struct.pack(">i", len(header) + len(body)) + header + body


class _Reader:
    def __init__(self, data: bytes, position: int = 8) -> None:
        self._data, self._position = data, position

    def take(self, format_: str) -> Any:
        values = struct.unpack_from(">" + format_, self._data, self._position)
        self._position += struct.calcsize(">" + format_)
        return values[0] if len(values) == 1 else values

    def string(self) -> str | None:
        size = self.take("h")
        return None if size < 0 else self._raw(size).decode()

    def bytes(self) -> bytes:
        return self._raw(self.take("i"))

    def _raw(self, size: int) -> bytes:
        raw = self._data[self._position : self._position + size]
        self._position += size
        return raw


def _commit(group: str, topic: str, offset: int) -> bytes:
    body = _string(group) + struct.pack(">i", -1) + _string("") + _string(None)
    body += (
        struct.pack(">i", 1) + _string(topic) + struct.pack(">i", 1) + struct.pack(">iqi", 0, offset, -1) + _string("")
    )
    return _frame(OFFSET_COMMIT, 7, body)


def _until_taken(connection: socket.socket, request: bytes, error_at: int, what: str) -> bytes:
    """The frame of the first reply that has no error: the group's partition may have to be made or loaded first."""
    deadline = time.perf_counter() + 60
    while True:
        connection.sendall(request)
        frame = read_frame(connection)
        (error,) = struct.unpack_from(">h", frame, error_at)
        if not error:
            return frame
        if time.perf_counter() > deadline:
            raise RuntimeError(f"{what}: error {error}")
        time.sleep(0.05)


def _coordinator_port(connection: socket.socket, group: str) -> int:
    request = _frame(FIND_COORDINATOR, 1, _string(group) + b"\0")
    found = _Reader(_until_taken(connection, request, 12, f"no coordinator of {group}"), 14)
    found.string()
    found.take("i")
    found.string()
    port: int = found.take("i")
    return port


def _await_coordinator(connection: socket.socket, group: str, topic: str) -> None:
    _until_taken(
        connection, _commit(group, topic, 0), 4 + 4 + 4 + 4 + 2 + len(topic) + 4 + 4, f"{group} takes no commit"
    )


def commit(port: int, topic: str, groups: int, connections: int, seconds: float) -> Work:
    """Each connection goes to one coordinator and commits for its share of its groups, one commit in flight."""
    selector = selectors.DefaultSelector()
    reply_size = 4 + 4 + 4 + 4 + (2 + len(topic)) + 4 + 4 + 2
    led: dict[int, list[str]] = {}
    with connect(port) as asking:
        for number in range(groups):
            group = f"group-{number}"
            led.setdefault(_coordinator_port(asking, group), []).append(group)
    for coordinator, names in led.items():
        share = connections // len(led)
        for index in range(share):
            connection = connect(coordinator)
            mine = names[index::share]
            for group in mine:
                _await_coordinator(connection, group, topic)
            requests = [_commit(group, topic, 5) for group in mine]
            selector.register(connection, selectors.EVENT_READ, [requests, 0, 0])
    yield
    started = time.perf_counter()
    deadline = started + seconds
    for key in selector.get_map().values():
        key.fileobj.sendall(key.data[0][0])  # type: ignore[union-attr]
    outstanding, commits = len(selector.get_map()), 0
    running = True
    while outstanding:
        for key, _ in selector.select(10):
            sock, state = key.fileobj, key.data
            chunk = sock.recv(4096)  # type: ignore[union-attr]
            if not chunk:
                raise ConnectionError("the broker closed the connection")
            state[1] += len(chunk)
            if state[1] < reply_size:
                continue
            if state[1] != reply_size or chunk[-2:] != b"\0\0":
                raise RuntimeError(f"OffsetCommit answered {chunk!r}")
            state[1] = 0
            commits += 1
            if running:
                state[2] = (state[2] + 1) % len(state[0])
                sock.sendall(state[0][state[2]])  # type: ignore[union-attr]
            else:
                outstanding -= 1
        running = running and time.perf_counter() < deadline
    return {"requests": commits, "seconds": time.perf_counter() - started}


class _Member:
    """One member on one connection: joins, syncs, and joins again when told to."""

    def __init__(self, port: int, group: str, number: int) -> None:
        self.connection = connect(port)
        self.group, self.instance = group, f"i{number:04d}"
        self.member_id = ""
        self.generation = -1
        self.stable = False
        self.asked = 0

    def _send(self, key: int, version: int, body: bytes) -> None:
        self.asked = key
        self.connection.sendall(_frame(key, version, body))

    def join(self) -> None:
        self.stable = False
        body = _string(self.group) + struct.pack(">ii", SESSION_MS, SESSION_MS) + _string(self.member_id)
        body += _string(self.instance) + _string("consumer")
        self._send(JOIN_GROUP, 5, body + struct.pack(">i", 1) + _string("range") + _bytes(METADATA))

    def heartbeat(self) -> None:
        body = _string(self.group) + struct.pack(">i", self.generation) + _string(self.member_id)
        self._send(HEARTBEAT, 3, body + _string(self.instance))

    def receive(self) -> None:
        reader = _Reader(read_frame(self.connection))
        _, error = reader.take("ih")
        if self.asked == JOIN_GROUP:
            self.generation = reader.take("i")
            reader.string()
            leader, self.member_id = reader.string(), reader.string() or ""
            if error:
                raise RuntimeError(f"JoinGroup answered {error}")
            assignments = b""
            count = reader.take("i") if leader == self.member_id else 0
            for _ in range(count):
                assignments += _string(reader.string())
                reader.string()
                reader.bytes()
                assignments += _bytes(bytes(100))
            body = _string(self.group) + struct.pack(">i", self.generation) + _string(self.member_id)
            self._send(SYNC_GROUP, 3, body + _string(self.instance) + struct.pack(">i", count) + assignments)
            return
        self.asked = 0
        if error == REBALANCE_IN_PROGRESS:
            self.join()
        elif error:
            raise RuntimeError(f"error {error} in a rebalance")
        else:
            self.stable = True


def rebalance(port: int, topic: str, members: int, rounds: int) -> Work:
    """A stable group of many members; each round everybody joins again. The time from the first JoinGroup to the last
    assignment."""
    group = f"large-{topic}"
    first = connect(port)
    _coordinator_port(first, group)
    _await_coordinator(first, group, topic)
    everybody = [_Member(port, group, number) for number in range(members)]
    selector = selectors.DefaultSelector()
    for member in everybody:
        selector.register(member.connection, selectors.EVENT_READ, member)

    def until_stable() -> None:
        beat_at = time.perf_counter() + 0.2
        while len({member.generation for member in everybody}) != 1 or not all(m.stable for m in everybody):
            for key, _ in selector.select(0.05):
                key.data.receive()
            if time.perf_counter() >= beat_at:
                for member in everybody:
                    if member.stable and not member.asked:
                        member.heartbeat()
                beat_at = time.perf_counter() + 0.2

    for member in everybody:
        member.join()
    until_stable()
    yield
    samples = []
    for _ in range(rounds):
        while any(member.asked for member in everybody):
            for key, _ in selector.select(0.05):
                key.data.receive()
        started = time.perf_counter()
        for member in everybody:
            member.join()
        until_stable()
        samples.append(time.perf_counter() - started)
    return percentiles(samples)
