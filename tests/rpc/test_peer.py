"""A connection to another node: whoever asks is told exactly once, also when time runs out before anybody looks."""

from __future__ import annotations

import asyncio
from typing import Any

import uvloop
from pylogd.protocol.api import ApiKey
from pylogd.protocol.framing import encode_response
from pylogd.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from pylogd.rpc.peer import Peer


class Wire:
    """The network and the stream in one: takes what is sent."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.receiver: Any = None
        self.sent = 0

    async def connect(self, host: str, port: int) -> Wire:
        return self

    def start(self, receiver: Any) -> None:
        self.receiver = receiver

    def send(self, chunks: Any) -> None:
        self.sent += 1

    def want(self, size: int) -> None: ...

    def close(self) -> None: ...

    def answer_versions(self, correlation_id: int) -> None:
        answer = ApiVersionsResponse(api_keys=[ApiVersion(ApiKey.API_VERSIONS, 0, 4)])
        frame = b"".join(map(bytes, encode_response(ApiKey.API_VERSIONS, 3, correlation_id, answer)))
        self.receiver.received(memoryview(frame), 0, len(frame))


async def until_told(told: list[str], count: int) -> None:
    async with asyncio.timeout(20):
        while len(told) < count:
            await asyncio.sleep(0.005)


def test_a_request_behind_one_that_is_late_already() -> None:
    """The event loop was busy for longer than a request may take: the timer is due, and a new request comes first."""

    async def main() -> None:
        wire = Wire()
        peer = Peer(wire, "host", 1, client_id="c")  # type: ignore[arg-type]
        told: list[str] = []

        def ask(name: str, timeout_s: float) -> None:
            peer.send(ApiVersionsRequest(), lambda response, failure: told.append(name), timeout_s=timeout_s)

        ask("first", 30)
        async with asyncio.timeout(20):
            while not wire.sent:
                await asyncio.sleep(0.005)
        ask("late", -1)
        ask("waiting", 30)
        wire.answer_versions(1)
        assert (peer.connected, wire.sent) == (True, 4)
        ask("last", 30)
        await until_told(told, 4)
        assert sorted(told) == ["first", "last", "late", "waiting"]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def test_a_mistake_in_a_handler_ends_the_connection_and_not_the_waiting() -> None:
    async def main() -> None:
        wire = Wire()
        peer = Peer(wire, "host", 1, client_id="c")  # type: ignore[arg-type]
        told: list[str] = []

        def wrong(response: Any, failure: Any) -> None:
            raise RuntimeError("a mistake")

        peer.send(ApiVersionsRequest(), wrong)
        async with asyncio.timeout(20):
            while not wire.sent:
                await asyncio.sleep(0.005)
        wire.answer_versions(1)
        peer.send(ApiVersionsRequest(), lambda response, failure: told.append(str(failure)))
        wire.answer_versions(2)
        assert told == ["an answer of host:1 could not be handled"]
        assert not peer.connected

    asyncio.run(main())
