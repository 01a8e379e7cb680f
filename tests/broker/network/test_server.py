"""Connections: order, limits, malformed input, and what happens to the neighbours (nothing)."""

from __future__ import annotations

import logging
import os
import random
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pylogd.config.listeners import Endpoint
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pylogd.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from support.datanode import DataNode
from support.produce import fetch_request, produce_request, records, values
from support.rawclient import Client, Closed

HELLO = ApiVersionsRequest(client_software_name="tests", client_software_version="1")


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Any]:
    nodes: list[DataNode] = []

    def make(**properties: str) -> DataNode:
        nodes.append(DataNode(tmp_path / str(len(nodes)), **properties))
        return nodes[-1]

    yield make
    for node in nodes:
        node.close()


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def test_pipelined_requests_are_answered_in_order(node: DataNode) -> None:
    node.create_topic("t")
    with node.client() as client:
        requests = []
        for n in range(50):
            requests.append(client.encode(produce_request("t", records(b"%d" % n)), 9))
            if n % 5 == 0:
                requests.append(client.encode(HELLO, 3))
            if n % 7 == 0:
                requests.append(client.encode(fetch_request("t", 0, wait_ms=20, min_bytes=1), 12))
        client.socket.sendall(b"".join(requests))
        for _ in requests:
            client.reply()


def test_requests_behind_a_long_poll_wait_for_it(node: DataNode) -> None:
    node.create_topic("t")
    with node.client() as client, node.client() as producer:
        client.socket.sendall(
            client.encode(fetch_request("t", 0, wait_ms=30_000), 12)
            + client.encode(produce_request("t", records(b"b")), 9)
            + client.encode(HELLO, 3)
        )
        while not node.partition("t").waiters.fetches:
            time.sleep(0.001)
        assert node.partition("t").log.log_end_offset == 0
        producer.ask(produce_request("t", records(b"a")), 9)
        assert values(client.reply().responses[0].partitions[0].records) == [b"a"]
        assert client.reply().responses[0].partition_responses[0].base_offset == 1
        assert client.reply().error_code == 0


def test_a_client_that_does_not_read_is_not_read(node: DataNode) -> None:
    node.create_topic("t", max_message_bytes=2_000_000)
    with node.client() as client, node.client() as slow:
        client.ask(produce_request("t", records(os.urandom(1_000_000))), 9)
        slow.socket.settimeout(30)
        slow.socket.sendall(b"".join(slow.encode(fetch_request("t", 0, max_bytes=1 << 21), 12) for _ in range(40)))
        # The neighbour does not notice.
        for _ in range(20):
            client.ask(fetch_request("t", 0), 12)
        connection = next(c for c in node.server.connections if c.stream.sending)
        assert len(connection.stream._queue) < 10
        for _ in range(40):
            assert len(slow.reply().responses[0].partitions[0].records) > 1_000_000


@pytest.mark.parametrize("version", range(5))
def test_api_versions(node: DataNode, version: int) -> None:
    node.call(node.image.features.update, {"group.version": 1})
    node.image.metadata_version = 30
    with node.client() as client:
        response = client.ask(HELLO, version)
    rows = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
    assert rows[0] == (0, 13)
    assert rows[1] == (4, 18)
    assert rows[18] == (0, 4)
    assert rows[22] == (0, 5)
    assert 71 not in rows
    assert 72 not in rows
    if version >= 3:
        finalized = {row.name: row.max_version_level for row in response.finalized_features}
        assert finalized == {"metadata.version": 30, "group.version": 1, "kraft.version": 1}
        supported = {row.name: (row.min_version, row.max_version) for row in response.supported_features}
        assert supported["metadata.version"] == (7, 30)
        assert ("group.version" in supported) == (version >= 4)
        assert response.zk_migration_ready is False


def test_a_newer_api_versions_is_answered_with_version_0(node: DataNode) -> None:
    with node.client() as client:
        client.socket.sendall(frame(struct.pack(">hhih", 18, 77, 5, 1) + b"c\x00" + b"whatever"))
        reply = client.frame()
        assert struct.unpack_from(">ihi", reply) == (5, ErrorCode.UNSUPPORTED_VERSION, 1)
        assert struct.unpack_from(">hhh", reply, 10) == (18, 0, 4)
        assert client.ask(HELLO, 4).error_code == 0


def test_api_versions_wants_a_proper_name(node: DataNode) -> None:
    with node.client() as client:
        request = ApiVersionsRequest(client_software_name="no good!", client_software_version="1")
        assert client.ask(request, 3) == ApiVersionsResponse(error_code=int(ErrorCode.INVALID_REQUEST))


BAD_FRAMES = {
    "negative size": struct.pack(">i", -1),
    "zero size": struct.pack(">i", 0),
    "too long": struct.pack(">i", 200_000_000),
    "no header": frame(b"\x00"),
    "header cut off": frame(struct.pack(">hhi", 3, 1, 1)),
    "unknown api": frame(struct.pack(">hhih", 999, 0, 1, -1)),
    "negative api": frame(struct.pack(">hhih", -3, 0, 1, -1)),
    "removed api": frame(struct.pack(">hhih", 4, 0, 1, -1)),
    "controller api": frame(struct.pack(">hhih", 52, 0, 1, -1)),
    "old version": frame(struct.pack(">hhih", 0, 2, 1, -1)),
    "new version": frame(struct.pack(">hhih", 1, 99, 1, -1) + b"\x00"),
    "negative version": frame(struct.pack(">hhih", 1, -1, 1, -1)),
    "client id behind the end": frame(struct.pack(">hhih", 3, 1, 1, 500) + b"x"),
    "negative client id": frame(struct.pack(">hhih", 3, 1, 1, -7)),
    "client id not text": frame(struct.pack(">hhih", 3, 1, 1, 2) + b"\xff\xfe"),
    "no tags": frame(struct.pack(">hhih", 1, 12, 1, -1)),
    "body cut off": frame(struct.pack(">hhih", 0, 9, 1, -1) + b"\x00\x00"),
    "absurd array": frame(struct.pack(">hhihi", 1, 4, 1, -1, -1) + b"\x7f" * 40),
}


@pytest.mark.parametrize("name", BAD_FRAMES)
def test_malformed_input_closes_only_its_connection(node: DataNode, caplog: Any, name: str) -> None:
    with node.client() as neighbour, node.client() as client, caplog.at_level(logging.WARNING):
        neighbour.ask(HELLO, 3)
        client.socket.sendall(BAD_FRAMES[name])
        assert client.is_closed()
        neighbour.ask(HELLO, 3)
    assert any("127.0.0.1:" in record.getMessage() for record in caplog.records)


def test_noise_never_hurts(node: DataNode) -> None:
    node.create_topic("t")
    chance = random.Random(5)
    with node.client() as neighbour:
        good = [
            neighbour.encode(produce_request("t", records(b"a")), 9),
            neighbour.encode(fetch_request("t", 0), 12),
            neighbour.encode(HELLO, 3),
            neighbour.encode(ListOffsetsRequest(), 6),
        ]
        neighbour._asked.clear()
        for _ in range(300):
            data = bytearray(chance.choice(good))
            for _ in range(chance.randint(1, 8)):
                data[chance.randrange(4, len(data))] = chance.randrange(256)
            with socket.create_connection(("127.0.0.1", node.port), timeout=10) as noisy:
                noisy.sendall(data)
                noisy.shutdown(socket.SHUT_WR)
                while noisy.recv(1 << 16):
                    pass
        assert neighbour.ask(HELLO, 3).error_code == 0


def test_requests_above_the_size_limit(made: Any) -> None:
    node = made(socket_request_max_bytes="1000")
    node.create_topic("t")
    with node.client() as client:
        assert client.ask(produce_request("t", records(b"x" * 500)), 9)
        client.send(produce_request("t", records(b"x" * 2000)), 9)
        assert client.is_closed()


def test_connections_per_address(made: Any) -> None:
    node = made(max_connections_per_ip="2")
    first, second = node.client(), node.client()
    first.ask(HELLO, 3)
    second.ask(HELLO, 3)
    with node.client() as third:
        assert third.is_closed()
    second.socket.close()
    while len(node.server.connections) > 1:
        time.sleep(0.001)
    with node.client() as fourth:
        fourth.ask(HELLO, 3)
    first.socket.close()


def test_connections_per_address_with_an_exception(made: Any) -> None:
    node = made(max_connections_per_ip="0", max_connections_per_ip_overrides="127.0.0.1:1")
    with node.client() as first, node.client() as second:
        first.ask(HELLO, 3)
        assert second.is_closed()


def test_connections_wait_for_a_place(made: Any) -> None:
    node = made(max_connections="1")
    first = node.client()
    first.ask(HELLO, 3)
    with node.client() as second:
        waits_for_the_place_of(first, second)


def waits_for_the_place_of(first: Client, second: Client) -> None:
    second.send(HELLO, 3)
    second.socket.settimeout(0.1)
    with pytest.raises(TimeoutError):
        second.reply()
    second.socket.settimeout(10)
    first.socket.close()
    assert second.reply().error_code == 0


def other_listener(node: DataNode, *, privileged: bool) -> int:
    """The port of a second listener."""

    def bind() -> int:
        endpoint = Endpoint("OTHER", "127.0.0.1", 0)
        port: int = node.server.bind(endpoint, privileged=privileged).port
        node.server.start(node.dispatcher)
        return port

    return node.call(bind)


def test_each_listener_has_a_limit_of_its_own(made: Any) -> None:
    node = made(listener_name_other_max_connections="1")
    with Client(other_listener(node, privileged=False)) as first, node.client() as elsewhere:
        first.ask(HELLO, 3)
        with Client(node.server.listeners["OTHER"].port) as second:
            assert elsewhere.ask(HELLO, 3).error_code == 0
            waits_for_the_place_of(first, second)


def test_other_brokers_get_a_place_when_there_is_none(made: Any) -> None:
    """The connection that was silent longest makes room; one that waits for its answer stays."""
    node = made(max_connections="3")
    node.create_topic("t")
    port = other_listener(node, privileged=True)
    with node.client() as idle, node.client() as busy, node.client() as polling:
        for client in (idle, busy):
            client.ask(HELLO, 3)
        polling.send(fetch_request("t", 0, wait_ms=30_000), 12)
        while not node.partition("t").waiters.fetches:
            time.sleep(0.001)
        busy.ask(HELLO, 3)
        with Client(port) as broker:
            assert broker.ask(HELLO, 3).error_code == 0
            assert idle.is_closed()
            assert busy.ask(HELLO, 3).error_code == 0
            busy.ask(produce_request("t", records(b"x")), 9)
            assert polling.reply().error_code == 0


def test_the_rate_of_new_connections(made: Any) -> None:
    node = made(max_connection_creation_rate="2")
    started = time.monotonic()
    clients = [node.client() for _ in range(5)]
    for client in clients:
        client.ask(HELLO, 3)
        client.socket.close()
    assert time.monotonic() - started >= 1.0


def test_idle_connections_are_closed(made: Any) -> None:
    node = made(connections_max_idle_ms="100")
    node.create_topic("t")
    with node.client() as idle, node.client() as polling:
        idle.ask(HELLO, 3)
        polling.send(fetch_request("t", 0, wait_ms=400), 12)
        assert idle.is_closed()
        # Waiting for an answer is not being idle.
        assert polling.reply().error_code == 0


def test_long_requests_share_bounded_memory(made: Any) -> None:
    node = made(queued_max_request_bytes="300000")
    node.create_topic("t", max_message_bytes=2_000_000)
    first, second = node.client(), node.client()
    data = [client.encode(produce_request("t", records(bytes(400_000))), 9) for client in (first, second)]
    first.socket.sendall(data[0][:200_000])
    while node.server.memory.used == 0:
        time.sleep(0.001)
    second.socket.sendall(data[1][:200_000])
    while not any(connection.share.waiting for connection in node.server.connections):
        time.sleep(0.001)
    first.socket.sendall(data[0][200_000:])
    assert first.reply()
    second.socket.sendall(data[1][200_000:])
    assert second.reply()
    assert node.server.memory.used == 0
    first.socket.sendall(first.encode(produce_request("t", records(bytes(400_000))), 9)[:100_000])
    while node.server.memory.used == 0:
        time.sleep(0.001)
    first.socket.close()
    while node.server.memory.used:
        time.sleep(0.001)
    second.socket.close()


def test_who_does_not_read_is_hung_up_on(made: Any) -> None:
    node = made()
    node.create_topic("t", max_message_bytes=3_000_000)
    with node.client() as client, node.client() as deaf:
        client.ask(produce_request("t", records(os.urandom(2_000_000))), 9)
        deaf.socket.sendall(b"".join(deaf.encode(fetch_request("t", 0, max_bytes=1 << 22), 12) for _ in range(10)))

        def busy() -> bool:
            return any(connection.stream.sending for connection in node.server.connections)

        while not node.call(busy):
            time.sleep(0.001)
        node.server.limits.idle_s = 0.2
        while node.call(busy):
            node.call(node.server._sweep_idle)
        with pytest.raises((Closed, ConnectionError)):
            [deaf.reply() for _ in range(10)]


def test_announcements_do_not_keep_others_out(made: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("pylogd.broker.network.request_memory._PATIENCE_S", 0.2)
    node = made(queued_max_request_bytes="300000")
    node.create_topic("t", max_message_bytes=2_000_000)
    with node.client() as talker, node.client() as producer:
        talker.socket.sendall(struct.pack(">i", 50_000_000) + b"\0\0\0\x09")
        while node.server.memory.used == 0:
            time.sleep(0.001)
        producer.send(produce_request("t", records(bytes(400_000))), 9)
        while not node.server.memory.contended:
            time.sleep(0.001)
            talker.socket.sendall(b"x")  # a byte now and then is no sign of good will
        while node.call(lambda: node.server.memory.contended):
            node.call(node.server._sweep_idle)
        assert producer.reply().responses[0].partition_responses[0].error_code == 0
        assert talker.is_closed()


def test_a_handler_that_fails_is_answered(node: DataNode, monkeypatch: Any, caplog: Any) -> None:
    node.create_topic("t")

    def explode(*_: Any) -> Any:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("pylogd.broker.handlers.list_offsets._Search", explode)
    topics = [ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(timestamp=-1)])]
    with node.client() as client, caplog.at_level(logging.ERROR):
        answer = client.ask(ListOffsetsRequest(topics=topics), 6).topics[0].partitions[0]
        assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert client.ask(HELLO, 3).error_code == 0
    assert "ZeroDivisionError" in caplog.text


def test_an_answer_that_cannot_be_encoded_hangs_up(node: DataNode) -> None:
    with node.client() as client:
        node.image.offset = "not a number"  # type: ignore[assignment]
        client.send(HELLO, 3)
        with pytest.raises(Closed):
            client.reply()


def test_null_and_empty_client_ids(node: DataNode) -> None:
    for client_id in (None, "", "ünïcode"):
        with Client(node.port, client_id=client_id) as client:
            assert client.ask(HELLO, 3).error_code == 0
            assert client.ask(HELLO, 0).error_code == 0
