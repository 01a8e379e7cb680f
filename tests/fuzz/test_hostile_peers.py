"""Hostile bytes by the thousand: the broker lives, keeps nothing of them, and its other clients do not notice."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from random import Random

import confluent_kafka
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.admin import Admin
from support.daemon import HOST, Daemon
from support.hostile import attack, compression_bomb
from support.scale import scaled
from support.wait import eventually
from support.wire import METADATA, api_versions, frame, header

pytestmark = pytest.mark.pylogd_only

ATTACKS = scaled(test=6_000, soak=1_000_000)
GROWTH_BYTES_MAX = 40_000_000


class Bystander:
    """An honest client at work: numbered records in, the same numbers out, no error on either side."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.errors: list[str] = []
        self.sent = 0
        self.seen = 0
        self._stop = threading.Event()
        common = {"bootstrap.servers": bootstrap, "error_cb": lambda error: self.errors.append(str(error))}
        self._producer = confluent_kafka.Producer({**common, "enable.idempotence": True, "linger.ms": 1})
        by_hand = {"group.id": "bystander", "enable.auto.commit": False, "auto.offset.reset": "error"}
        self._consumer = confluent_kafka.Consumer({**common, **by_hand})
        self._consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        self._topic = topic
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set() and not self.errors:
            self._producer.produce(self._topic, str(self.sent).encode(), partition=0, on_delivery=self._delivered)
            self.sent += 1
            if self._producer.flush(20):
                self.errors.append("not acknowledged within 20 s")
            message = self._consumer.poll(20)
            if message is None or message.error():
                self.errors.append(f"nothing to read: {message and message.error()}")
            elif int(message.value()) != self.seen:
                self.errors.append(f"read {message.value()!r} instead of {self.seen}")
            else:
                self.seen += 1
        self._consumer.close()

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self.errors.append(str(error))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


def send(port: int, data: bytes, patience_s: float = 2) -> None:
    """One hostile connection: say it all, hang up half, and wait until the broker hangs up too."""
    with socket.create_connection((HOST, port), 10) as sock:
        sock.settimeout(patience_s)
        try:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(1 << 16):
                pass
        except (TimeoutError, ConnectionError):
            pass


@pytest.fixture
def target(new_broker: Callable[..., Daemon]) -> tuple[Daemon, list[str]]:
    broker = new_broker({"auto.create.topics.enable": "false", "log.cleaner.enable": "true"})
    admin = Admin(broker.bootstrap)
    # Three ways to look inside a batch: not at all, for its keys, and for recompression.
    topics = [admin.create("plain"), admin.create("compacted", cleanup_policy="compact")]
    topics.append(admin.create("recompressed", compression_type="zstd", message_timestamp_type="LogAppendTime"))
    admin.create("bystander")
    return broker, topics


@pytest.mark.timeout(scaled(test=300, soak=7200))
def test_storm(target: tuple[Daemon, list[str]]) -> None:
    broker, topics = target
    rng = Random(20)
    for _ in range(500):
        send(broker.port, attack(rng, topics))
    bystander = Bystander(broker.bootstrap, "bystander")
    assert eventually(lambda: bystander.seen > 5 or bystander.errors)
    rss, files = broker.rss_bytes(), broker.open_files()
    for number in range(ATTACKS):
        send(broker.port, attack(rng, topics))
        if number % 500 == 0:
            broker.assert_alive()
    bystander.stop()
    assert not bystander.errors
    assert bystander.seen > 20
    broker.assert_alive()
    broker.assert_log_clean()
    assert broker.rss_bytes() - rss < GROWTH_BYTES_MAX
    assert eventually(lambda: broker.open_files() <= files + 20), "descriptors of hostile connections are kept"
    assert api_versions(HOST, broker.port)


def test_compression_bombs(target: tuple[Daemon, list[str]]) -> None:
    """Many at once: what they unpack to must not add up in memory."""
    broker, topics = target
    rng = Random(7)
    send(broker.port, compression_bomb(rng, topics))
    rss = broker.rss_bytes()
    bombs = [compression_bomb(rng, topics) for _ in range(20)]
    threads = [threading.Thread(target=send, args=(broker.port, bomb, 30)) for bomb in bombs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    broker.assert_alive()
    broker.assert_log_clean()
    assert broker.rss_bytes() - rss < 200_000_000
    assert "plain" in Admin(broker.bootstrap).topics()


def test_slow_and_silent_connections(target: tuple[Daemon, list[str]]) -> None:
    """Peers that stop in the middle of a frame hold a descriptor and nothing else."""
    broker, _ = target
    rss = broker.rss_bytes()
    held = []
    for _ in range(scaled(test=1000, soak=2000)):
        sock = socket.create_connection((HOST, broker.port))
        # Announces 50 MB and sends almost nothing of it.
        sock.sendall(b"\x03\x00\x00\x00" + b"\x00\x00\x00\x09\x00\x00\x00\x01")
        held.append(sock)
    assert "plain" in Admin(broker.bootstrap).topics()
    assert broker.rss_bytes() - rss < GROWTH_BYTES_MAX
    for sock in held:
        sock.close()


def test_reader_that_never_reads(target: tuple[Daemon, list[str]]) -> None:
    """A client that asks and asks and never takes the answers must not fill the broker's memory."""
    broker, _ = target
    rss = broker.rss_bytes()
    request = frame(header(METADATA, 1) + b"\xff\xff\xff\xff")  # all topics
    with socket.create_connection((HOST, broker.port)) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(1)
        started = time.monotonic()
        sent = 0
        try:
            while sent < 50_000_000 and time.monotonic() - started < 10:
                sent += sock.send(request * 500)
        except TimeoutError:
            pass
        assert broker.rss_bytes() - rss < GROWTH_BYTES_MAX
        assert "plain" in Admin(broker.bootstrap).topics()


@pytest.fixture(scope="module")
def shared_port(broker: Daemon) -> int:
    return broker.port


@settings(
    max_examples=scaled(test=300, soak=20_000),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.binary(max_size=300))
def test_any_bytes(shared_port: int, data: bytes) -> None:
    """Hypothesis shrinks what breaks: after any bytes the broker answers the next client."""
    send(shared_port, data)
    assert api_versions(HOST, shared_port)


@settings(
    max_examples=scaled(test=300, soak=20_000),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(key=st.integers(-10, 100), version=st.integers(-2, 20), body=st.binary(max_size=200))
def test_any_body(shared_port: int, key: int, version: int, body: bytes) -> None:
    send(shared_port, frame(header(key, version) + body))
    assert api_versions(HOST, shared_port)
