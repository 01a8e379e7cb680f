"""Raw-socket load: prepared frames, a fixed number of requests in flight, replies counted by their bytes.

What this measures is the broker: the client side is one `recv` and one `sendall` per turn. Both brokers get the
same frames.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections.abc import Generator
from typing import Any

from bench.load import frames

Result = dict[str, Any]
Work = Generator[None, None, Result]

UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER = 3, 6


def connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def read_frame(connection: socket.socket) -> bytes:
    data = bytearray()
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        chunk = connection.recv(1 << 20)
        if not chunk:
            raise ConnectionError("the broker closed the connection")
        data += chunk
    return bytes(data)


def _first_reply(connection: socket.socket, topic: str, frame: bytes) -> None:
    """One checked request before the clock runs: later replies are only counted.

    A topic may be in Metadata a moment before its leader takes writes, so those two errors are asked again.
    """
    deadline = time.perf_counter() + 10
    while True:
        connection.sendall(frame)
        reply = read_frame(connection)
        error = frames.produce_error(reply, topic)
        if error not in (UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER) or time.perf_counter() > deadline:
            break
        time.sleep(0.01)
    if error or len(reply) != frames.produce_reply_size(topic):
        raise RuntimeError(f"Produce answered with error code {error} in {len(reply)} bytes")


def percentiles(samples: list[float]) -> Result:
    ordered = sorted(samples)
    return {
        "p50_ms": ordered[len(ordered) // 2] * 1e3,
        "p99_ms": ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)] * 1e3,
        "count": len(ordered),
    }


def produce(
    port: int,
    topic: str,
    partitions: int,
    connections: int,
    in_flight: int,
    record_count: int,
    value_size: int,
    seconds: float,
    bytes_max: int = 1 << 62,
) -> Work:
    """Keeps `in_flight` Produce requests unanswered on each connection for a time, or until enough bytes are sent."""
    records = frames.batch(record_count, value_size, int(time.time() * 1e3))
    reply_size = frames.produce_reply_size(topic)
    selector = selectors.DefaultSelector()
    for index in range(connections):
        connection = connect(port)
        frame = frames.produce(topic, index % partitions, records)
        _first_reply(connection, topic, frame)
        connection.setblocking(True)
        # A small frame is repeated once here, so that answering n replies is one slice and one send.
        window = memoryview(frame * in_flight)
        selector.register(connection, selectors.EVENT_READ, [window, len(frame), 0])
    yield
    payload = record_count * value_size
    requests_max = max(1, bytes_max // payload)
    started = time.perf_counter()
    deadline = started + seconds
    requests = sent = 0
    for key in selector.get_map().values():
        key.fileobj.sendall(key.data[0])  # type: ignore[union-attr]
        sent += in_flight
    outstanding = sent
    running = True
    while outstanding:
        for key, _ in selector.select(10):
            connection, state = key.fileobj, key.data
            chunk = connection.recv(1 << 16)  # type: ignore[union-attr]
            if not chunk:
                raise ConnectionError("the broker closed the connection")
            answered, state[2] = divmod(state[2] + len(chunk), reply_size)
            requests += answered
            outstanding -= answered
            if running and answered:
                connection.sendall(state[0][: answered * state[1]])  # type: ignore[union-attr]
                outstanding += answered
                sent += answered
        if running and (time.perf_counter() >= deadline or sent >= requests_max):
            running = False
    elapsed = time.perf_counter() - started
    return {"requests": requests, "seconds": elapsed, "bytes": requests * payload}


def produce_each(port: int, topics: list[str], partitions: int, value_size: int) -> Work:
    """One record to every partition of every topic, 32 requests at a time on one connection."""
    records = frames.batch(1, value_size, int(time.time() * 1e3))
    connection = connect(port)
    for topic in topics:
        _first_reply(connection, topic, frames.produce(topic, 0, records))
    yield
    started = time.perf_counter()
    deadline = started + 120
    for topic in topics:
        reply_size = frames.produce_reply_size(topic)
        left = list(range(partitions))
        while left:
            group, left = left[:32], left[32:]
            connection.sendall(b"".join(frames.produce(topic, partition, records) for partition in group))
            replies = b""
            while len(replies) < reply_size * len(group):
                replies += connection.recv(1 << 16)
            for number, partition in enumerate(group):
                error = frames.produce_error(replies[number * reply_size :], topic)
                if error in (UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER) and time.perf_counter() < deadline:
                    left.append(partition)  # in Metadata, but not taking writes yet
                elif error:
                    raise RuntimeError(f"Produce answered with error code {error}")
    return {"requests": len(topics) * partitions, "seconds": time.perf_counter() - started}


def produce_latency(port: int, topic: str, value_size: int, count: int) -> Work:
    """One request at a time on one connection."""
    frame = frames.produce(topic, 0, frames.batch(1, value_size, int(time.time() * 1e3)))
    connection = connect(port)
    for _ in range(200):
        _first_reply(connection, topic, frame)
    yield
    samples = []
    for _ in range(count):
        started = time.perf_counter()
        connection.sendall(frame)
        read_frame(connection)
        samples.append(time.perf_counter() - started)
    return percentiles(samples)


class _Fetcher:
    """Reads one partition over one connection into one buffer."""

    def __init__(self, port: int, topic: str, partition: int, fetch_bytes: int) -> None:
        self.topic, self.partition, self.fetch_bytes = topic, partition, fetch_bytes
        self.connection = connect(port)
        self.buffer = memoryview(bytearray(fetch_bytes + (2 << 20)))
        #: The log end, once `walk` has found it.
        self.end = 0

    def receive(self) -> int:
        """Fills the buffer with one reply frame and returns its length."""
        have, need = 0, 4
        while have < need:
            count = self.connection.recv_into(self.buffer[have:])
            if not count:
                raise ConnectionError("the broker closed the connection")
            have += count
            if need == 4 and have >= 4:
                need = 4 + struct.unpack_from(">i", self.buffer)[0]
        return have

    def walk(self) -> list[bytes]:
        """One pass over the partition: the requests that read it whole. Also brings it into the page cache."""
        requests, offset = [], 0
        at = frames.fetch_records_position(self.topic)
        while True:
            request = frames.fetch(self.topic, self.partition, offset, self.fetch_bytes, max_wait_ms=0)
            self.connection.sendall(request)
            length = self.receive()
            error = frames.fetch_error(self.buffer, self.topic)
            if error:
                raise RuntimeError(f"Fetch answered with error code {error}")
            following = frames.next_offset(self.buffer[at + 4 : length])
            if following is None:
                self.end = offset
                return requests
            requests.append(request)
            offset = following


def fetch(port: int, topic: str, partitions: int, fetch_bytes: int, seconds: float) -> Work:
    """Reads all partitions again and again, one request in flight on a connection for each partition."""
    fetchers = [_Fetcher(port, topic, partition, fetch_bytes) for partition in range(partitions)]
    plans = [fetcher.walk() for fetcher in fetchers]
    for plan in plans:
        if not plan:
            raise RuntimeError("nothing to fetch")
    yield
    started = time.perf_counter()
    deadline = started + seconds
    moved = requests = 0
    position = 0
    for fetcher, plan in zip(fetchers, plans):
        fetcher.connection.sendall(plan[0])
    while time.perf_counter() < deadline:
        position += 1
        for fetcher, plan in zip(fetchers, plans):
            moved += fetcher.receive()
            requests += 1
            fetcher.connection.sendall(plan[position % len(plan)])
    for fetcher in fetchers:
        moved += fetcher.receive()
        requests += 1
    return {"bytes": moved, "requests": requests, "seconds": time.perf_counter() - started}


def end_to_end(port: int, topic: str, value_size: int, count: int) -> Work:
    """From sending a record to receiving it: a Fetch waits at the end of the log while a Produce comes in beside it."""
    frame = frames.produce(topic, 0, frames.batch(1, value_size, int(time.time() * 1e3)))
    producer = connect(port)
    _first_reply(producer, topic, frame)
    consumer = _Fetcher(port, topic, 0, 1 << 20)
    consumer.walk()
    at = frames.fetch_records_position(topic)
    offset = consumer.end
    samples = []
    for number in range(200 + count):
        if number == 200:
            yield
        consumer.connection.sendall(frames.fetch(topic, 0, offset, 1 << 20, max_wait_ms=5_000))
        time.sleep(0.0005)  # the Fetch is waiting by now
        started = time.perf_counter()
        producer.sendall(frame)
        length = consumer.receive()
        samples.append(time.perf_counter() - started)
        if frames.next_offset(consumer.buffer[at + 4 : length]) != offset + 1:
            raise RuntimeError("the Fetch was answered without the new record")
        offset += 1
        read_frame(producer)
    return percentiles(samples[200:])
