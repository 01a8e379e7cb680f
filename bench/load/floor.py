"""The least a server can do for the loads of this bench: it takes requests apart and answers them from memory.

Nothing is checked, written, kept for long or shared with another server, so what a load reaches here is what client,
system calls and wake-ups leave to any broker: the floor under a latency and the ceiling over a rate. It serves what
the loads ask of one broker: Produce 8, Fetch 11 and OffsetCommit 7 of one partition each, and what librdkafka asks
before that.

With a file it writes and fsyncs each Produce before it answers: what durability costs without group commit.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
from bisect import bisect_right
from collections.abc import Generator
from typing import Any

from pylogd.protocol.codec import encoder
from pylogd.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from pylogd.protocol.messages.find_coordinator import FindCoordinatorResponse
from pylogd.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

from bench.load.frames import FETCH, FETCH_VERSION, PRODUCE, PRODUCE_VERSION

METADATA, OFFSET_COMMIT, FIND_COORDINATOR, API_VERSIONS = 3, 8, 10, 18
#: First and last version of each API; none but ApiVersions is flexible, so that headers have one form.
_VERSIONS = {
    PRODUCE: (PRODUCE_VERSION, PRODUCE_VERSION),
    FETCH: (FETCH_VERSION, FETCH_VERSION),
    METADATA: (1, 4),
    FIND_COORDINATOR: (0, 0),
    API_VERSIONS: (0, 3),
}
PARTITIONS = 4
_KEPT_BATCHES = 4_000
_request = struct.Struct(">hhih").unpack_from
_produce_reply = struct.Struct(">qqqihi").pack
#: Session, topics, topic name | partitions, index, error, watermark, stable offset, log start, aborted, replica, size
_fetch_partition = struct.Struct(">iihqqqiii").pack


class _Partition:
    """The last batches, for readers at the end; and the reader that waits there."""

    def __init__(self) -> None:
        self.end = 0
        self.bases: list[int] = []
        self.batches: list[bytes] = []
        self.waiting: list[tuple[socket.socket, int, bytes, int, int]] = []

    def append(self, records: bytes) -> int:
        base = self.end
        self.end += struct.unpack_from(">i", records, 57)[0]
        self.bases.append(base)
        self.batches.append(struct.pack(">q", base) + records[8:])
        if len(self.bases) > 2 * _KEPT_BATCHES:
            del self.bases[:_KEPT_BATCHES], self.batches[:_KEPT_BATCHES]
        return base

    def read(self, offset: int) -> bytes:
        return b"".join(self.batches[max(0, bisect_right(self.bases, offset) - 1) :]) if offset < self.end else b""


class _Server:
    def __init__(self, port: int, durable: int | None) -> None:
        self.port = port
        #: The file that every Produce is written and synced to.
        self.durable = durable
        self.partitions: dict[tuple[bytes, int], _Partition] = {}

    def answer(self, connection: socket.socket, frame: memoryview) -> bytes:
        """The reply; nothing when it comes later."""
        key, version, number, length = _request(frame, 0)
        body = frame[10 + max(length, 0) :]
        if key == PRODUCE:
            return self._produce(number, body)
        if key == FETCH:
            return self._fetch(connection, number, body)
        if key == OFFSET_COMMIT:
            return self._commit(number, body)
        reply = bytearray(struct.pack(">i", number))
        if key == API_VERSIONS:
            known = [ApiVersion(api, first, last) for api, (first, last) in _VERSIONS.items()]
            encoder(ApiVersionsResponse, version)(ApiVersionsResponse(0, known), reply, [])
        elif key == METADATA:
            encoder(MetadataResponse, version)(self._metadata(body), reply, [])
        else:
            found = FindCoordinatorResponse(node_id=0, host="127.0.0.1", port=self.port)
            encoder(FindCoordinatorResponse, version)(found, reply, [])
        return struct.pack(">i", len(reply)) + bytes(reply)

    def _metadata(self, body: memoryview) -> MetadataResponse:
        topics = []
        position = 4
        for _ in range(max(0, struct.unpack_from(">i", body)[0])):
            (length,) = struct.unpack_from(">h", body, position)
            name = bytes(body[position + 2 : position + 2 + length]).decode()
            position += 2 + length
            partitions = [
                MetadataResponsePartition(partition_index=index, leader_id=0, replica_nodes=[0], isr_nodes=[0])
                for index in range(PARTITIONS)
            ]
            topics.append(MetadataResponseTopic(name=name, partitions=partitions))
        broker = MetadataResponseBroker(node_id=0, host="127.0.0.1", port=self.port)
        return MetadataResponse(brokers=[broker], cluster_id="floor", controller_id=0, topics=topics)

    def _partition(self, topic: bytes, index: int) -> _Partition:
        found = self.partitions.get((topic, index))
        if found is None:
            found = self.partitions[topic, index] = _Partition()
        return found

    def _produce(self, number: int, body: memoryview) -> bytes:
        # A transactional id (none), acks, time-out and the count of topics come before the topic.
        stop = 14 + struct.unpack_from(">h", body, 12)[0]
        _, index, size = struct.unpack_from(">iii", body, stop)
        topic = bytes(body[12:stop])
        partition = self._partition(topic, index)
        records = bytes(body[stop + 12 : stop + 12 + size])
        if self.durable is not None:
            os.write(self.durable, records)
            os.fdatasync(self.durable)
        base = partition.append(records)
        reply = b"".join(
            (
                struct.pack(">ii", number, 1),
                topic,
                struct.pack(">iih", 1, index, 0),
                _produce_reply(base, -1, 0, 0, -1, 0),
            )
        )
        if partition.waiting:
            waiting, partition.waiting = partition.waiting, []
            for connection, waiter, name, at, offset in waiting:
                connection.sendall(self._fetched(waiter, name, at, partition, offset))
        return struct.pack(">i", len(reply)) + reply

    def _commit(self, number: int, body: memoryview) -> bytes:
        # Group, generation, member (none), instance (none) and the count of topics come before the topic.
        start = 2 + struct.unpack_from(">h", body)[0] + 12
        stop = start + 2 + struct.unpack_from(">h", body, start)[0]
        _, index = struct.unpack_from(">ii", body, stop)
        reply = struct.pack(">iii", number, 0, 1) + body[start:stop] + struct.pack(">iih", 1, index, 0)
        return struct.pack(">i", len(reply)) + reply

    def _fetch(self, connection: socket.socket, number: int, body: memoryview) -> bytes:
        _, wait_ms, _, _, _, _, _, topics = struct.unpack_from(">iiiibiii", body)
        if not topics:
            return b""
        stop = 31 + struct.unpack_from(">h", body, 29)[0]
        topic = bytes(body[29:stop])
        _, index, _, offset = struct.unpack_from(">iiiq", body, stop)
        partition = self._partition(topic, index)
        if offset >= partition.end and wait_ms:
            # For good: the loads always send something.
            partition.waiting.append((connection, number, topic, index, offset))
            return b""
        return self._fetched(number, topic, index, partition, offset)

    def _fetched(self, number: int, topic: bytes, index: int, partition: _Partition, offset: int) -> bytes:
        records = partition.read(offset)
        end = partition.end
        head = struct.pack(">iihii", number, 0, 0, 0, 1) + topic
        head += _fetch_partition(1, index, 0, end, end, 0, 0, -1, len(records))
        return struct.pack(">i", len(head) + len(records)) + head + records


def serve(path: str, durable: str | None = None) -> Generator[None, None, dict[str, Any]]:
    """Serves until it is killed; its port is written to `path`."""
    descriptor = None if durable is None else os.open(durable, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    with open(path, "w") as out:
        out.write(str(port))
    yield
    server = _Server(port, descriptor)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ, None)
    while True:
        for key, _ in selector.select():
            if key.data is None:
                connection, _ = listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                selector.register(connection, selectors.EVENT_READ, [b""])
                continue
            connection, state = key.fileobj, key.data  # type: ignore[assignment]
            data = connection.recv(1 << 18)
            if not data:
                selector.unregister(connection)
                connection.close()
                continue
            if state[0]:
                data = state[0] + data
            view, position, replies = memoryview(data), 0, []
            while len(data) - position >= 4:
                stop = position + 4 + struct.unpack_from(">i", data, position)[0]
                if stop > len(data):
                    break
                replies.append(server.answer(connection, view[position + 4 : stop]))
                position = stop
            state[0] = data[position:]
            if out_bytes := b"".join(replies):
                connection.sendall(out_bytes)
