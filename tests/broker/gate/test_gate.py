"""The gate sees every request, and what it says is done: for decoded requests and for repetitions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pylogd.broker.gate.gate import Decision, Gate, Resource, ResourceKind
from pylogd.protocol.api import ApiKey
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages.api_versions import ApiVersionsRequest
from pylogd.protocol.messages.find_coordinator import FindCoordinatorRequest
from pylogd.protocol.messages.heartbeat import HeartbeatRequest
from pylogd.protocol.messages.metadata import MetadataRequest
from pylogd.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pylogd.protocol.messages.produce import ProduceResponse
from pylogd.rpc.caller import Caller
from support.datanode import DataNode
from support.follower import Follower, leading
from support.produce import produce_request, records
from support.rawclient import Client
from support.wait import eventually

GROUP = "readers"


class WatchedGate(Gate):
    """Notes who passes, and says what it is told to say."""

    def __init__(self) -> None:
        super().__init__()
        self.decision = Decision()
        #: (API, "full" or "again", number of requests)
        self.passed: list[tuple[ApiKey, str, int]] = []
        self.again: list[Caller] = []
        self.seen: list[tuple[Caller, ApiKey, tuple[Resource, ...]]] = []

    def admit(self, caller: Caller, api: ApiKey, resources: tuple[Resource, ...], size: int) -> Decision:
        super().admit(caller, api, resources, size)
        self.passed.append((api, "full", 1))
        self.seen.append((caller, api, resources))
        return self.decision

    def admit_again(self, caller: Caller, api: ApiKey, size: int, requests: int = 1) -> int:
        super().admit_again(caller, api, size, requests)
        self.again.append(caller)
        self.passed.append((api, "again", requests))
        return self.decision.throttle_ms

    def ways(self, api: ApiKey) -> list[str]:
        """How the requests of an API came through since this was asked last."""
        found = [way for key, way, count in self.passed for _ in range(count) if key is api]
        self.passed = [each for each in self.passed if each[0] is not api]
        return found

    def say(self, code: ErrorCode = ErrorCode.NONE, throttle_ms: int = 0) -> None:
        self.decision = Decision(code, throttle_ms)
        self.meters = throttle_ms > 0

    def change(self) -> None:
        self.generation += 1


@pytest.fixture
def gate() -> WatchedGate:
    return WatchedGate()


@pytest.fixture
def node(tmp_path: Path, gate: WatchedGate) -> Iterator[DataNode]:
    made = DataNode(tmp_path, gate)
    made.create_topic("orders", 3)
    made.coordinate()
    yield made
    made.close()


def produce(value: bytes = b"v") -> Any:
    return produce_request("orders", records(value))


def commit(offset: int) -> Any:
    partition = OffsetCommitRequestPartition(0, offset, 4, "")
    return OffsetCommitRequest(group_id=GROUP, topics=[OffsetCommitRequestTopic("orders", partitions=[partition])])


def repeat(client: Client, node: DataNode, api: ApiKey, version: int) -> Any:
    return client.ask(produce() if api is ApiKey.PRODUCE else commit(7), version)


REPEATING = [(ApiKey.PRODUCE, 9), (ApiKey.PRODUCE, 4), (ApiKey.OFFSET_COMMIT, 8), (ApiKey.OFFSET_COMMIT, 6)]


@pytest.mark.parametrize(("api", "version"), REPEATING)
def test_the_next_repetition_sees_another_generation(
    node: DataNode, gate: WatchedGate, api: ApiKey, version: int
) -> None:
    with node.client() as client:
        for _ in range(3):
            repeat(client, node, api, version)
        assert gate.ways(api) == ["full", "again", "again"]
        node.call(gate.change)
        for _ in range(3):
            repeat(client, node, api, version)
        assert gate.ways(api) == ["full", "again", "again"], "asked once, and learnt anew"
        gate.say(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        node.call(gate.change)
        refused = repeat(client, node, api, version)
        assert gate.ways(api) == ["full"]
        assert _codes(refused) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        gate.say()
        assert _codes(repeat(client, node, api, version)) == [0]
        assert gate.ways(api) == ["full"], "nothing is learnt from a refusal"


def _codes(response: Any) -> list[int]:
    if isinstance(response, ProduceResponse):
        return [each.error_code for topic in response.responses for each in topic.partition_responses]
    return [each.error_code for topic in response.topics for each in topic.partitions]


def test_a_refused_produce_appends_nothing(node: DataNode, gate: WatchedGate) -> None:
    with node.client() as client:
        for _ in range(3):
            client.ask(produce(), 9)
        gate.say(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        node.call(gate.change)
        client.ask(produce(), 9)
    assert node.partition("orders").log.log_end_offset == 3


def test_a_fetch_sees_another_generation(tmp_path: Path, gate: WatchedGate) -> None:
    with leading(tmp_path, gate) as node, node.client() as client:
        follower = Follower(node, client)
        for _ in range(2):
            follower.waits()
            follower.produce("t", b"a")
            assert follower.receive() == {"t": [b"a"]}
            follower.ask("t")
        follower.waits()
        assert gate.ways(ApiKey.FETCH)[-1] == "again"
        node.call(gate.change)
        follower.produce("t", b"b")
        assert follower.receive() == {"t": [b"b"]}, "what has been admitted is answered"
        follower.ask("t")
        follower.waits()
        assert gate.ways(ApiKey.FETCH) == ["full"]
        follower.produce("t", b"c")
        assert follower.receive() == {"t": [b"c"]}
        gate.say(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        node.call(gate.change)
        follower.ask("t")
        assert client.reply().error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize(("api", "version"), REPEATING)
def test_a_throttle_time_reaches_the_replies(node: DataNode, gate: WatchedGate, api: ApiKey, version: int) -> None:
    with node.client() as client:
        before = repeat(client, node, api, version)
        gate.say(throttle_ms=250)
        throttled = [repeat(client, node, api, version) for _ in range(2)]
        assert gate.ways(api) == ["full", "again", "again"]
        node.call(gate.change)
        throttled.append(repeat(client, node, api, version))
        assert gate.ways(api) == ["full"]
        gate.say()
        after = repeat(client, node, api, version)
    assert [each.throttle_time_ms for each in (before, *throttled, after)] == [0, 250, 250, 250, 0]
    assert all(_codes(each) == [0] for each in (before, *throttled, after))


def test_a_repetition_is_admitted_for_who_sent_it(node: DataNode, gate: WatchedGate) -> None:
    """Several clients may share a connection, as behind a proxy."""

    def ask(client_id: str, request: Any, version: int) -> None:
        client.client_id = client_id
        client.ask(request, version)

    with node.client() as client:
        ask("one", produce(), 9)
        ask("two", produce(), 9)
        ask("two", commit(7), 8)
        ask("six", MetadataRequest(topics=[]), 9)
        gate.say(throttle_ms=1)
        for client_id in ("one", "two", "one"):
            ask(client_id, produce(), 9)
        ask("two", commit(8), 8)
    assert [caller.client_id for caller in gate.again] == ["one", "two", "one", "two"]


def test_a_throttle_time_is_told_once(node: DataNode, gate: WatchedGate) -> None:
    """Repeated commits share their response."""
    with node.client() as client:
        client.ask(commit(7), 8)
        told = []
        for throttle_ms in (250, 100, 0):
            gate.say(throttle_ms=throttle_ms)
            told.append(client.ask(commit(8), 8).throttle_time_ms)
    assert told == [250, 100, 0]


def test_a_repetition_waits_for_the_requests_before_it(tmp_path: Path, gate: WatchedGate) -> None:
    with leading(tmp_path, gate) as node, node.client() as client:
        node.coordinate()
        node.create_topic("orders")
        for _ in range(3):
            client.ask(commit(7), 8)
        assert gate.ways(ApiKey.OFFSET_COMMIT) == ["full", "again", "again"]
        # Broker 2 does not fetch: the records wait for it.
        waiting = client.encode(produce_request("t", records(b"v"), acks=-1, timeout_ms=300), 9)
        client.socket.sendall(waiting + client.encode(commit(8), 8))
        eventually(lambda: node.call(lambda: gate.ways(ApiKey.PRODUCE)), pause_s=0.001)
        assert node.call(lambda: gate.ways(ApiKey.OFFSET_COMMIT)) == []
        assert _codes(client.reply()) == [ErrorCode.REQUEST_TIMED_OUT]
        assert _codes(client.reply()) == [0]
        assert gate.ways(ApiKey.OFFSET_COMMIT) == ["again"]


def test_a_throttle_time_reaches_requests_that_came_together(node: DataNode, gate: WatchedGate) -> None:
    with node.client() as client:
        client.ask(produce(), 9)
        gate.say(throttle_ms=40)
        client.socket.sendall(b"".join(client.encode(produce(), 9) for _ in range(20)))
        replies = [client.reply() for _ in range(20)]
    assert {each.throttle_time_ms for each in replies} == {40}
    assert [each.responses[0].partition_responses[0].base_offset for each in replies] == list(range(1, 21))


def test_a_throttle_time_reaches_replies_that_wait_for_replicas(tmp_path: Path, gate: WatchedGate) -> None:
    with leading(tmp_path, gate) as node, node.client() as client, node.client() as producer:
        follower = Follower(node, client)
        follower.waits()
        gate.say(throttle_ms=30)
        for number in range(4):
            follower.waits()
            producer.send(produce_request("t", records(b"v"), acks=-1), 9)
            told = client.reply()
            assert [len(topic.partitions) for topic in told.responses] == [1]
            assert told.throttle_time_ms == (30 if number else 0), "the first one was asked before"
            follower.ends["t"] += 1
            follower.ask("t")
            reply = producer.reply()
            assert (reply.throttle_time_ms, _codes(reply)) == (30, [0])
        assert "again" in gate.ways(ApiKey.PRODUCE)
        assert "again" in gate.ways(ApiKey.FETCH)


def test_a_throttle_time_reaches_every_other_api(node: DataNode, gate: WatchedGate) -> None:
    asked: list[Any] = [
        ApiVersionsRequest(client_software_name="tests", client_software_version="1"),
        MetadataRequest(topics=[]),
        FindCoordinatorRequest(coordinator_keys=["g"]),
        HeartbeatRequest(group_id="nobody", generation_id=1, member_id="m"),
    ]
    with node.client() as client:
        gate.say(throttle_ms=70)
        assert [client.ask(request).throttle_time_ms for request in asked] == [70] * len(asked)
        gate.say()
        assert [client.ask(request).throttle_time_ms for request in asked] == [0] * len(asked)


def test_everything_is_counted_once(node: DataNode, gate: WatchedGate) -> None:
    traffic = gate.traffic[ApiKey.PRODUCE]
    with node.client() as client:
        frames = [client.encode(produce(b"x" * n), 9) for n in (1, 10, 3, 500, 5000, 2)]
        for frame in frames:
            client.socket.sendall(frame)
            client.reply()
        together = [client.encode(produce(b"y"), 9) for _ in range(50)]
        client.socket.sendall(b"".join(together))
        for _ in together:
            client.reply()
        assert gate.ways(ApiKey.PRODUCE) == ["full"] + ["again"] * 55
        assert traffic.requests == 56
        assert traffic.bytes == sum(len(frame) - 4 for frame in frames + together)
        client.ask(produce_request("no such topic", records(b"v")), 9)
        assert traffic.requests == 57


def test_the_gate_is_told_who_asks_and_for_what(node: DataNode, gate: WatchedGate) -> None:
    with node.client() as client:
        client.ask(produce(), 9)
        client.ask(commit(3), 8)
    (caller, _, topics), (_, _, groups) = gate.seen
    assert (caller.principal, caller.client_id, caller.host, caller.listener) == (
        "User:ANONYMOUS",
        "raw",
        "127.0.0.1",
        "PLAINTEXT",
    )
    assert topics == ((ResourceKind.TOPIC, "orders"),)
    assert groups == ((ResourceKind.GROUP, GROUP),)
