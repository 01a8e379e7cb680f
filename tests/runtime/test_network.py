"""Streams over real sockets: frames in, chunks and file ranges out, whatever the kernel cuts them into."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import threading

import pytest
from pylogd.runtime.files import FileRange, FileSystem
from pylogd.runtime.loop import new_event_loop
from pylogd.runtime.network import Network
from pylogd.runtime.sockets import pagecache
from pylogd.runtime.stream import Stream
from pylogd.runtime.workers import Workers


class Frames:
    """Collects length-prefixed frames; `hold` stops after each frame until `stream.resume()`."""

    def __init__(self, connected: Stream, hold: bool = False, copy: bool = True) -> None:
        self.stream = connected
        self.hold = hold
        self.copy = copy
        self.frames: list[bytes | memoryview] = []
        self.lost_reason: list[str | None] = []
        self.drains = 0
        connected.start(self)

    def received(self, view: memoryview, start: int, end: int) -> int:
        while end - start >= 4:
            (size,) = struct.unpack_from(">i", view, start)
            if start + 4 + size > end:
                self.stream.want(4 + size)
                break
            frame = view[start + 4 : start + 4 + size]
            self.frames.append(bytes(frame) if self.copy else frame)
            start += 4 + size
            if self.hold:
                self.stream.pause()
                break
        return start

    def drained(self) -> None:
        self.drains += 1

    def lost(self, reason: str | None) -> None:
        self.lost_reason.append(reason)


class Bench:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.workers = Workers(loop, threads_max=2)
        self.network = Network(loop, self.workers)
        self.receivers: list[Frames] = []
        self.options: dict[str, bool] = {}
        self.listener = self.network.listen("127.0.0.1", 0, self._accepted)
        self.listener.resume()

    def _accepted(self, connected: Stream) -> None:
        self.receivers.append(Frames(connected, **self.options))

    def client(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.listener.port), timeout=10)

    def until(self, condition) -> None:  # type: ignore[no-untyped-def]
        async def wait() -> None:
            while not condition():
                await asyncio.sleep(0.001)

        self.loop.run_until_complete(asyncio.wait_for(wait(), 20))

    def accepted(self) -> Frames:
        self.until(lambda: self.receivers)
        return self.receivers[-1]

    def receive(self, client: socket.socket, size: int) -> bytes:
        """Read `size` bytes in a thread while the loop turns."""
        data = bytearray()

        def read() -> None:
            while len(data) < size:
                part = client.recv(1 << 16)
                if not part:
                    return
                data.extend(part)

        thread = threading.Thread(target=read)
        thread.start()
        self.until(lambda: not thread.is_alive())
        return bytes(data)

    def close(self) -> None:
        self.listener.close()
        self.network.close()
        self.workers.close()


@pytest.fixture(params=["uvloop", "asyncio"])
def bench(request):  # type: ignore[no-untyped-def]
    loop = new_event_loop() if request.param == "uvloop" else asyncio.new_event_loop()
    made = Bench(loop)
    yield made
    made.close()
    loop.close()


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def test_frames_arrive_whole_however_they_are_cut(bench: Bench) -> None:
    payloads = [os.urandom(size) for size in (0, 1, 3, 70, 5000, 40_000, 300_000, 1, 2_000_000, 9)]
    wire = b"".join(map(frame, payloads))
    with bench.client() as client:
        receiver = bench.accepted()
        for cut in (1, 5, 11, 100, 64_000, 65_536, 400_000):
            client.sendall(wire[:cut]) if len(wire) > cut else None
            wire = wire[cut:]
            bench.loop.run_until_complete(asyncio.sleep(0))
        sender = threading.Thread(target=client.sendall, args=(wire,))
        sender.start()
        bench.until(lambda: len(receiver.frames) == len(payloads))
        sender.join()
    assert receiver.frames == payloads


def test_a_huge_frame_does_not_keep_its_memory(bench: Bench) -> None:
    with bench.client() as client:
        receiver = bench.accepted()
        payload = os.urandom(12_000_000)
        sender = threading.Thread(target=client.sendall, args=(frame(payload),))
        sender.start()
        bench.until(lambda: receiver.frames)
        sender.join()
        assert receiver.frames == [payload]
        assert receiver.stream._own is None


def test_a_claimed_length_costs_no_memory_until_bytes_arrive(bench: Bench) -> None:
    with bench.client() as client:
        receiver = bench.accepted()
        client.sendall(struct.pack(">i", 100_000_000) + b"x" * 10)
        bench.until(lambda: receiver.stream._own is not None)
        assert len(receiver.stream._own or b"") <= 4 << 20


def test_a_held_frame_is_never_overwritten(bench: Bench) -> None:
    bench.options = {"copy": False}
    payloads = [bytes([n]) * 3000 for n in range(200)]
    with bench.client() as client:
        receiver = bench.accepted()
        for payload in payloads:
            client.sendall(frame(payload))
            bench.loop.run_until_complete(asyncio.sleep(0))
        bench.until(lambda: len(receiver.frames) == len(payloads))
        assert [bytes(view) for view in receiver.frames] == payloads
        assert all(not view.readonly for view in receiver.frames if isinstance(view, memoryview))


def test_pause_keeps_order_and_resume_goes_on(bench: Bench) -> None:
    bench.options = {"hold": True}
    payloads = [b"%d" % n * 50 for n in range(30)]
    with bench.client() as client:
        receiver = bench.accepted()
        client.sendall(b"".join(map(frame, payloads)))
        bench.until(lambda: receiver.frames)
        for count in range(1, len(payloads) + 1):
            bench.until(lambda count=count: len(receiver.frames) == count)
            receiver.stream.resume()
        assert receiver.frames == payloads


def test_a_peer_that_goes_is_noticed_while_paused(bench: Bench) -> None:
    bench.options = {"hold": True}
    client = bench.client()
    receiver = bench.accepted()
    client.sendall(frame(b"a"))
    bench.until(lambda: receiver.frames)
    client.close()
    bench.until(lambda: receiver.lost_reason)
    assert receiver.lost_reason == [None]


def test_chunks_and_ranges_leave_in_order(bench: Bench, tmp_path) -> None:  # type: ignore[no-untyped-def]
    data = os.urandom(5_000_000)
    (tmp_path / "log").write_bytes(data)
    file = FileSystem().open(str(tmp_path / "log"), readonly=True)
    with bench.client() as client:
        receiver = bench.accepted()
        ranges = FileRange(file, 10, 3_000_000), FileRange(file, 7, 100)
        receiver.stream.send([b"head", ranges[0], bytearray(b"middle"), ranges[1], b"end"])
        receiver.stream.send([b"next"])
        expected = b"head" + data[10:3_000_010] + b"middle" + data[7:107] + b"end" + b"next"
        assert bench.receive(client, len(expected)) == expected
        bench.until(lambda: receiver.drains)
    assert not file.pinned


def test_many_small_chunks_leave_whole(bench: Bench) -> None:
    chunks = [b"%06d" % n for n in range(5000)]
    with bench.client() as client:
        receiver = bench.accepted()
        receiver.stream.send(list(chunks))
        assert bench.receive(client, 30_000) == b"".join(chunks)


@pytest.mark.parametrize("told", [True, False])
def test_cold_ranges_go_through_a_worker(bench: Bench, tmp_path, monkeypatch, told) -> None:  # type: ignore[no-untyped-def]
    data = os.urandom(40 << 20)
    path = tmp_path / "log"
    path.write_bytes(data)
    file = FileSystem().open(str(path), readonly=True)
    file.fsync()
    pagecache.drop(file.open(), 0, len(data))
    pages = bench.network.environment.pages
    if pages.resident(file.open(), 0, len(data)):
        pytest.skip("this file system keeps its pages")
    loads: list[int] = []
    drops: list[int] = []
    load, drop = pagecache.load, pagecache.drop
    monkeypatch.setattr(pagecache, "load", lambda fd, at, n, more: loads.append(n) or load(fd, at, n, more))
    monkeypatch.setattr(pagecache, "drop", lambda fd, at, n: drops.append(n) or drop(fd, at, n))
    if not told:
        # As on a kernel without cachestat, where no range is known to be in memory.
        monkeypatch.setattr(pages, "resident", lambda *_: None)
    with bench.client() as client:
        receiver = bench.accepted()
        receiver.stream.send([b"head", FileRange(file, 0, len(data))])
        assert bench.receive(client, 4 + len(data)) == b"head" + data
    assert loads
    # What is well behind the reader is let go, whether it waited for it or had asked for it ahead.
    bench.until(lambda: sum(drops) >= len(data) // 2)
    receiver.stream.close()
    bench.until(lambda: not file.pinned)


def test_a_reader_that_caught_up_lets_nothing_go(bench: Bench, tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """The end of the file is hot: others read it too."""
    data = os.urandom(40 << 20)
    hot_from = 20 << 20
    path = tmp_path / "log"
    path.write_bytes(data)
    file = FileSystem().open(str(path), readonly=True)
    ends: list[int] = []
    monkeypatch.setattr(pagecache, "drop", lambda fd, at, n: ends.append(at + n))
    monkeypatch.setattr(bench.network.environment.pages, "resident", lambda fd, at, n: at >= hot_from)
    with bench.client() as client:
        receiver = bench.accepted()
        receiver.stream.send([FileRange(file, 0, len(data))])
        assert bench.receive(client, len(data)) == data
    assert ends
    assert max(ends) <= hot_from
    receiver.stream.close()
    bench.until(lambda: not file.pinned)


def test_a_truncated_range_hangs_up(bench: Bench, tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "log").write_bytes(b"x" * 100_000)
    file = FileSystem().open(str(tmp_path / "log"))
    with bench.client() as client:
        receiver = bench.accepted()
        receiver.stream.send([b"head", FileRange(file, 0, 200_000)])
        assert len(bench.receive(client, 200_004)) == 100_004
    assert "truncated" in (receiver.lost_reason[0] or "")
    assert not file.pinned


def test_closing_gives_ranges_back(bench: Bench, tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "log").write_bytes(b"x" * 50_000_000)
    file = FileSystem().open(str(tmp_path / "log"), readonly=True)
    with bench.client():
        receiver = bench.accepted()
        assert receiver.stream.send([FileRange(file, 0, 50_000_000)]) is False
        assert file.pinned
        receiver.stream.close()
        bench.until(lambda: not file.pinned)


def test_a_paused_listener_leaves_connections_waiting(bench: Bench) -> None:
    bench.listener.pause()
    with bench.client():
        bench.loop.run_until_complete(asyncio.sleep(0.02))
        assert bench.receivers == []
        bench.listener.resume()
        bench.accepted()


def test_names_of_both_ends(bench: Bench) -> None:
    with bench.client() as client:
        receiver = bench.accepted()
        assert (receiver.stream.peer_host, receiver.stream.peer_port) == client.getsockname()[:2]
        assert (receiver.stream.local_host, receiver.stream.local_port) == client.getpeername()[:2]


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6")
def test_every_interface_takes_both_families(bench: Bench) -> None:
    seen: list[str] = []
    listener = bench.network.listen("", 0, lambda connected: seen.append(connected.peer_host))
    listener.resume()
    with (
        socket.create_connection(("127.0.0.1", listener.port), timeout=10),
        socket.create_connection(("::1", listener.port), timeout=10),
    ):
        bench.until(lambda: len(seen) == 2)
    assert sorted(seen) == ["127.0.0.1", "::1"]
    listener.close()


def test_residency_is_told(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "data"
    path.write_bytes(os.urandom(1 << 20))
    fd = os.open(path, os.O_RDONLY)
    pages = pagecache.PageCache()
    if pages.method == "none":
        pytest.skip("no cachestat and no mincore here")
    try:
        assert pages.resident(fd, 5, 1 << 19) is True
        assert pages._mincore(fd, 5, 1 << 19) is True
        os.fsync(fd)
        pagecache.drop(fd, 0, 1 << 20)
        assert pages.resident(fd, 5, 1 << 19) == pages._mincore(fd, 5, 1 << 19)
        assert pagecache.load(fd, 0, 1 << 20) == 1 << 20
        assert pages.resident(fd, 0, 1 << 20) is True
    finally:
        os.close(fd)
