"""A broker is fenced early only on evidence: its heartbeat connection broke, and twice nobody listened."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from pylogd.broker.cluster.controller_assembly import fencing_settings
from pylogd.config.broker import BrokerConfig
from pylogd.controller import fencing_evidence
from pylogd.controller.fencing_evidence import FencingEvidence
from pylogd.metadata.registrations import Broker, Endpoint
from pylogd.runtime.network import Network
from pylogd.runtime.workers import Workers
from support.ports import free_ports

EPOCH = 40


class Controller:
    """The active controller of node 1, which knows broker 2 at these ports."""

    def __init__(self, ports: dict[str, int]) -> None:
        self.active = True
        self.incarnation_id: bytes | None = None
        endpoints = {name: Endpoint(name, "127.0.0.1", port) for name, port in ports.items()}
        self.broker = Broker(2, EPOCH, bytes(16), endpoints, {}, fenced=False)
        self.state: Any = SimpleNamespace(
            image=SimpleNamespace(brokers={2: self.broker}),
            settings=SimpleNamespace(node_id=1),
            heartbeats=SimpleNamespace(session_timeout_ms=9000),
        )
        self.gone: list[tuple[int, int]] = []

    def broker_gone(self, broker_id: int, epoch: int) -> None:
        self.gone.append((broker_id, epoch))


Story = Callable[[FencingEvidence, Controller], Awaitable[None]]


def run(port: int, story: Story, others: dict[str, int] | None = None, **settings: str) -> list[tuple[int, int]]:
    async def main() -> list[tuple[int, int]]:
        loop = asyncio.get_running_loop()
        workers = Workers(loop, threads_max=1)
        controller = Controller({**(others or {}), "PLAINTEXT": port})
        named = {name.replace("_", "."): value for name, value in settings.items()}
        config = BrokerConfig({"node.id": "1", "process.roles": "broker,controller", **named})
        network = Network(loop, workers)
        fencing = FencingEvidence(
            fencing_settings(config, network, lambda: controller.incarnation_id),
            controller.state,
            loop,
            is_active=lambda: controller.active,
            gone=controller.broker_gone,
        )
        await story(fencing, controller)
        while fencing._tasks:
            await asyncio.wait(list(fencing._tasks.values()))
            await asyncio.sleep(0)
        network.close()
        workers.close()
        return controller.gone

    return asyncio.run(main())


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> int:
    """A port where nobody listens."""
    monkeypatch.setattr(fencing_evidence, "PAUSE_SECONDS", 0.05)
    return free_ports(1)[0]


async def lose(fencing: FencingEvidence, controller: Controller) -> None:
    connection = object()
    fencing.heartbeat(connection, 2, EPOCH)
    fencing.connection_closed(connection)


def test_a_process_that_is_gone_is_fenced(nobody: int) -> None:
    assert run(nobody, lose) == [(2, EPOCH)]


def test_one_that_still_listens_is_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        assert run(listening.getsockname()[1], lose) == []


@pytest.mark.parametrize(
    ("settings", "fenced"),
    [
        # What is advertised to clients is not asked, whatever is there: `localhost` is somebody else elsewhere.
        ({"inter_broker_listener_name": "INTERNAL"}, False),
        ({"inter_broker_listener_name": "PLAINTEXT"}, True),
        # A controller alone may not know the name: one listener that is there is enough.
        ({"process_roles": "controller"}, False),
    ],
)
def test_the_listener_between_brokers_counts(nobody: int, settings: dict[str, str], fenced: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        found = run(nobody, lose, {"INTERNAL": listening.getsockname()[1]}, **settings)
    assert found == ([(2, EPOCH)] if fenced else [])


def test_one_whose_listener_closes_a_moment_after_its_connection_is_fenced(nobody: int) -> None:
    """As the kernel ends a process: one descriptor after the other."""

    async def story(fencing: FencingEvidence, controller: Controller) -> None:
        with socket.create_server(("127.0.0.1", nobody)) as listening:
            listening.setblocking(False)
            await lose(fencing, controller)
            await asyncio.get_running_loop().sock_accept(listening)

    assert run(nobody, story) == [(2, EPOCH)]


@pytest.mark.parametrize("code", [errno.ECONNRESET, errno.ENOTCONN, errno.EHOSTUNREACH])
def test_a_dial_that_fails_in_another_way_is_followed_by_others(nobody: int, code: int) -> None:
    """A connection that waited to be accepted is reset when its listener is closed."""

    async def story(fencing: FencingEvidence, controller: Controller) -> None:
        settings = fencing._settings
        dial = settings.dial

        async def fail_once(host: str, port: int) -> Any:
            settings.dial = dial
            raise OSError(code, "at the first dial")

        settings.dial = fail_once
        await lose(fencing, controller)

    assert run(nobody, story) == [(2, EPOCH)]


def test_a_heartbeat_meanwhile_is_a_sign_of_life(nobody: int) -> None:
    async def story(fencing: FencingEvidence, controller: Controller) -> None:
        await lose(fencing, controller)
        await asyncio.sleep(0)
        fencing.heartbeat(object(), 2, EPOCH)

    assert run(nobody, story) == []


def test_an_older_connection_says_nothing(nobody: int) -> None:
    async def story(fencing: FencingEvidence, controller: Controller) -> None:
        old = object()
        fencing.heartbeat(old, 2, EPOCH)
        fencing.heartbeat(object(), 2, EPOCH)
        fencing.connection_closed(old)

    assert run(nobody, story) == []


def test_a_connection_without_heartbeats_says_nothing(nobody: int) -> None:
    async def story(fencing: FencingEvidence, controller: Controller) -> None:
        fencing.connection_closed(object())

    assert run(nobody, story) == []


def test_a_newer_incarnation_is_left_alone(nobody: int) -> None:
    async def story(fencing: FencingEvidence, controller: Controller) -> None:
        controller.broker.epoch = EPOCH + 1
        await lose(fencing, controller)

    assert run(nobody, story) == []


def test_a_controller_that_is_not_active_does_nothing(nobody: int) -> None:
    async def story(fencing: FencingEvidence, controller: Controller) -> None:
        controller.active = False
        await lose(fencing, controller)

    assert run(nobody, story) == []


def test_a_new_active_controller_looks_at_every_unfenced_broker(nobody: int) -> None:
    async def story(fencing: FencingEvidence, controller: Controller) -> None:
        fencing.activated(only_voter=False)

    assert run(nobody, story) == [(2, EPOCH)]


@pytest.mark.parametrize(("incarnation_id", "gone"), [(None, True), (b"n" * 16, True), (bytes(16), False)])
def test_the_broker_of_an_earlier_process_of_the_own_node_is_gone(incarnation_id: bytes | None, gone: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        async def story(fencing: FencingEvidence, controller: Controller) -> None:
            controller.state.settings.node_id = 2
            controller.incarnation_id = incarnation_id
            fencing.activated(only_voter=False)

        assert run(listening.getsockname()[1], story) == ([(2, EPOCH)] if gone else [])


def test_a_new_active_controller_looks_until_the_first_heartbeat(nobody: int) -> None:
    """It has no connection yet whose end would tell it."""

    async def story(fencing: FencingEvidence, controller: Controller) -> None:
        with socket.create_server(("127.0.0.1", nobody)) as listening:
            listening.setblocking(False)
            fencing.activated(only_voter=False)
            for _ in range(round(2 * fencing_evidence.PROBE_SECONDS / fencing_evidence.PAUSE_SECONDS)):
                await asyncio.get_running_loop().sock_accept(listening)

    assert run(nobody, story) == [(2, EPOCH)]
