"""The controller learns who asks, on every road that a request may take to it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from pylogd.broker.admin.topic_creation import TopicCreation
from pylogd.broker.cluster import controller_listener, forwarding
from pylogd.broker.cluster.local_channel import LocalChannel
from pylogd.broker.gate.gate import Decision, Gate, Resource
from pylogd.broker.network.context import RequestContext
from pylogd.config.broker import BrokerConfig
from pylogd.controller.served_apis import NOBODY, ControllerContext
from pylogd.protocol.api import ApiKey
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.framing import decode_response, decode_response_header
from pylogd.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from pylogd.rpc import envelope
from pylogd.rpc.caller import Caller
from pylogd.rpc.controller_channel import RoutedChannel

CLIENT = Caller("User:alice", "a-client", "10.1.2.3", "PLAINTEXT")
REQUEST = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)])


class Controller:
    """An active controller that remembers who asked."""

    active = True

    def __init__(self) -> None:
        self.contexts: list[ControllerContext] = []

    async def handle(self, request: Any, version: int, context: ControllerContext) -> Any:
        self.contexts.append(context)
        return CreateTopicsResponse()

    def asked_by(self) -> tuple[Caller, bool]:
        (context,) = self.contexts
        return context.caller, context.forwarded


@pytest.fixture
def controller() -> Controller:
    return Controller()


def route(controller: Any) -> RoutedChannel:
    network: Any = SimpleNamespace(loop=asyncio.get_running_loop())
    return RoutedChannel(network, find=lambda: None, bootstrap=[], local=LocalChannel(controller))


def listen(controller: Controller, request: Any, version: int, caller: Caller, gate: Gate | None = None) -> Any:
    """A request that comes in on the controller's listener."""
    connection: Any = SimpleNamespace(gate=gate or Gate())
    ctx = RequestContext(version, caller, 1, connection, SimpleNamespace(controller=controller))
    connection.answer = asyncio.run(_await(controller_listener.handle(ctx, request)))
    return connection


async def _await(answer: Any) -> Any:
    return await answer


def test_on_the_controllers_own_listener(controller: Controller) -> None:
    caller = CLIENT._replace(listener="CONTROLLER")
    connection = listen(controller, REQUEST, 7, caller)
    assert controller.asked_by() == (caller, False)
    assert controller.contexts[0].connection is connection


def test_in_an_envelope(controller: Controller) -> None:
    broker = Caller("User:broker", "broker-2-forwarding", "10.0.0.2", "CONTROLLER")
    listen(controller, envelope.wrap(REQUEST, 7, CLIENT, 5), 0, broker)
    assert controller.asked_by() == (CLIENT._replace(listener="CONTROLLER"), True)


class _Refusing(Gate):
    def admit(self, caller: Caller, api: ApiKey, resources: tuple[Resource, ...], size: int) -> Decision:
        self.asked = (caller, api, size)
        return Decision(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 90)


def test_what_an_envelope_carries_passes_the_gate(controller: Controller) -> None:
    gate = _Refusing()
    broker = Caller("User:broker", "broker-2-forwarding", "10.0.0.2", "CONTROLLER")
    wrapped = envelope.wrap(REQUEST, 7, CLIENT, 5)
    answer = listen(controller, wrapped, 0, broker, gate).answer
    assert gate.asked == (CLIENT._replace(listener="CONTROLLER"), ApiKey(REQUEST.API_KEY), len(wrapped.request_data))
    assert not controller.contexts
    _, position = decode_response_header(REQUEST.API_KEY, 7, memoryview(answer.response_data))
    response = decode_response(REQUEST.API_KEY, 7, memoryview(answer.response_data), position)
    assert [topic.error_code for topic in response.topics] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    assert response.throttle_time_ms == 90


def test_in_one_process(controller: Controller) -> None:
    async def forward() -> None:
        connection: Any = None
        services = SimpleNamespace(channel=route(controller))
        await forwarding.handle(RequestContext(7, CLIENT, 5, connection, services), REQUEST)

    asyncio.run(forward())
    assert controller.asked_by() == (CLIENT, True)


@pytest.mark.parametrize(("caller", "seen"), [(CLIENT, (CLIENT, True)), (None, (NOBODY, False))])
def test_of_a_topic_that_is_created_because_somebody_asked_for_it(
    controller: Controller, caller: Caller | None, seen: tuple[Caller, bool]
) -> None:
    async def create() -> None:
        config = BrokerConfig({"node.id": "1", "process.roles": "broker,controller"})
        host: Any = SimpleNamespace(config=config, loop=asyncio.get_running_loop())
        creation = TopicCreation(host, route(controller))
        creation.create(["t"], caller)
        await asyncio.gather(*creation._tasks)

    asyncio.run(create())
    assert controller.asked_by() == seen
