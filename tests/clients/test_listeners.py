"""Several listeners, what they advertise, and the limits on connections and requests."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable

import confluent_kafka
import pytest
from support.clients import Confluent, Message
from support.daemon import HOST, Daemon
from support.ports import free_ports
from support.wait import eventually
from support.wire import METADATA, api_versions, call, frame, header, read_frame

confluent = Confluent()


def advertised(host: str, port: int) -> list[tuple[str, int]]:
    """The brokers of a Metadata v1 answer."""
    with socket.create_connection((host, port), 5) as sock:
        reply = call(sock, METADATA, 1, struct.pack(">i", 0))
    found, position = [], 4
    for _ in range(struct.unpack_from(">i", reply)[0]):
        length = struct.unpack_from(">h", reply, position + 4)[0]
        name = reply[position + 6 : position + 6 + length].decode()
        position += 6 + length
        found.append((name, struct.unpack_from(">i", reply, position)[0]))
        rack = struct.unpack_from(">h", reply, position + 4)[0]
        position += 6 + max(0, rack)
    return found


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 loopback here")
def test_each_listener_advertises_its_own_address(new_broker: Callable[..., Daemon], topic_name: str) -> None:
    first, second, third, controller = free_ports(4)
    broker = new_broker(
        {
            "listeners": f"PLAINTEXT://{HOST}:{first},OTHER://{HOST}:{second},V6://[::1]:{third},"
            f"CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{first},OTHER://localhost:{second},V6://[::1]:{third}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT,V6:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.quorum.bootstrap.servers": f"{HOST}:{controller}",
        }
    )
    assert advertised(HOST, first) == [(HOST, first)]
    assert advertised(HOST, second) == [("localhost", second)]
    assert advertised("::1", third) == [("::1", third)]
    confluent.produce(f"localhost:{second}", topic_name, [Message(b"by name")])
    confluent.produce(f"[::1]:{third}", topic_name, [Message(b"by v6")])
    found = confluent.consume(broker.bootstrap, topic_name, 2)
    assert [m.value for m in found] == [b"by name", b"by v6"]


@pytest.mark.pylogd_only
def test_nothing_advertised_means_the_address_that_was_used(new_broker: Callable[..., Daemon]) -> None:
    """Kafka refuses to start so; here a client gets back the address it found us at."""
    port, controller = free_ports(2)
    new_broker(
        {
            "listeners": f"PLAINTEXT://0.0.0.0:{port},CONTROLLER://{HOST}:{controller}",
            "controller.quorum.bootstrap.servers": f"{HOST}:{controller}",
        }
    )
    assert advertised(HOST, port) == [(HOST, port)]
    assert advertised("127.0.0.2", port) == [("127.0.0.2", port)]


def closed_by_peer(sock: socket.socket) -> bool:
    sock.settimeout(10)
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def test_limits(new_broker: Callable[..., Daemon]) -> None:
    broker = new_broker(
        {"max.connections.per.ip": "10", "socket.request.max.bytes": "100000", "connections.max.idle.ms": "2000"}
    )
    # Too many from one address: the ones above the limit are closed, the others served.
    held = [socket.create_connection((HOST, broker.port)) for _ in range(10)]
    extra = socket.create_connection((HOST, broker.port))
    assert closed_by_peer(extra)
    extra.close()
    # An announced size above the limit closes the connection at once.
    held[0].sendall(struct.pack(">i", 100_001))
    assert closed_by_peer(held[0])
    # The others say nothing and are closed for it.
    for sock in held[1:]:
        assert closed_by_peer(sock)
        sock.close()
    assert eventually(lambda: serves(broker))


def serves(broker: Daemon) -> bool:
    try:
        return bool(api_versions(HOST, broker.port))
    except ConnectionError:
        return False


def test_replies_come_in_the_order_of_requests(broker: Daemon) -> None:
    """Pipelined requests of different cost on one connection: ids come back as they went."""
    with socket.create_connection((HOST, broker.port), 10) as sock:
        kinds = [(METADATA, struct.pack(">i", -1)), (18, b"")]
        sent = b"".join(frame(header(*_kind(kinds[n % 2][0]), n) + kinds[n % 2][1]) for n in range(200))
        sock.sendall(sent)
        answers = [struct.unpack_from(">i", read_frame(sock))[0] for _ in range(200)]
    assert answers == list(range(200))


def _kind(key: int) -> tuple[int, int]:
    return key, 1 if key == METADATA else 0


def test_unsupported_version_of_api_versions_is_answered(broker: Daemon) -> None:
    """A client from the future asks with version 99 and gets an error it can read: version 0, code 35."""
    with socket.create_connection((HOST, broker.port), 10) as sock:
        reply = call(sock, 18, 99, b"\x00")
    assert struct.unpack_from(">h", reply)[0] == confluent_kafka.KafkaError.UNSUPPORTED_VERSION
