"""A Produce that takes the short way must be answered, byte for byte, as the full way would answer it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pylogd.broker.gate.gate import Gate
from pylogd.broker.handlers import SUPPORTED, produce
from pylogd.broker.network.context import RequestContext
from pylogd.broker.network.dispatch import Route
from pylogd.broker.produce.produce_template import RepeatedProduce
from pylogd.protocol.api import ApiKey
from pylogd.protocol.batch import Record, build_batch, iter_headers
from pylogd.protocol.codec import encode
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.framing import encode_request
from pylogd.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pylogd.replication.partition import Partition
from pylogd.replication.replicas import Replicas
from pylogd.rpc.caller import Caller
from pylogd.runtime.clock import ManualClock
from pylogd.runtime.deferred import Deferred
from pylogd.runtime.files import FileSystem
from pylogd.storage.log.log_environment import LogEnvironment
from pylogd.storage.log_config import LogConfig
from pylogd.storage.recovery.loading import open_log

TOPIC_ID = bytes(range(16))
CALLER = Caller(client_id="tests")
NOW_MS = 1_700_000_000_000


def route(version: int) -> Route:
    return Route(ApiKey.PRODUCE, version, produce, SUPPORTED[ApiKey.PRODUCE])


class Broker:
    """The parts behind a connection: two topics of two partitions each, and the two ways to their logs."""

    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock(NOW_MS)
        self.loop: Any = SimpleNamespace(call_soon=lambda job: None, time=lambda: self.now_s, call_at=self._call_at)
        self.replicas = Replicas(1, self.loop)
        environment = LogEnvironment(FileSystem(), self.clock)
        for topic, topic_id in (("orders", TOPIC_ID), ("a longer name", TOPIC_ID[::-1])):
            for index in range(2):
                folder = directory / f"{topic}-{index}"
                folder.mkdir()
                log = open_log(environment, str(folder), topic, index, LogConfig(), topic_id=topic_id)
                self.replicas.add(topic, index, topic_id, log).become_leader(7, (1,))
        self.node: Any = SimpleNamespace(clock=self.clock, replicas=self.replicas)
        self.timers: list[tuple[float, Any]] = []
        self.now_s = 100.0

    def repeated(self, version: int = 8) -> RepeatedProduce:
        self.connection: Any = SimpleNamespace(
            caller=CALLER,
            dispatcher=SimpleNamespace(services=self.node, gate=Gate()),
            pending=deque(),
            loop=self.loop,
            settled=lambda reply: self.settled.append(reply),
        )
        self.settled: list[Any] = []
        return RepeatedProduce(self.connection, route(version))

    def _call_at(self, when: float, job: Any) -> Any:
        timer = (when, job)
        self.timers.append(timer)
        return SimpleNamespace(cancel=lambda: self.timers.remove(timer))

    def partition(self, topic: str = "orders", index: int = 0) -> Partition:
        found = self.replicas.get(topic, index)
        assert found is not None
        return found

    def full(self, frame: bytes, repeated: RepeatedProduce | None = None, version: int = 8) -> bytes:
        """The full way; `repeated` learns from it."""
        way = route(version)
        view = memoryview(bytearray(frame))[4:]
        position = 10 + int.from_bytes(view[8:10], "big") + (1 if way.request_tagged else 0)
        request, _ = way.decode(view, position)
        correlation_id = int.from_bytes(view[4:8], "big")
        context = RequestContext(version, CALLER, correlation_id, None, self.node)  # type: ignore[arg-type]
        response = way.handle(context, request)
        if repeated is not None:
            repeated.learn(context, view, position, request, response)
        if isinstance(response, Deferred):
            return b""
        out = bytearray()
        way.encode_into(out, [], correlation_id, response)
        return bytes(out)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path)
    yield made
    for partition in made.replicas:
        partition.log.close()


def frame(
    version: int = 8,
    *,
    topic: str = "orders",
    index: int = 0,
    acks: int = -1,
    correlation_id: int = 5,
    value: bytes = b"value",
    partitions: int = 1,
    **batch: Any,
) -> bytes:
    topic_id = TOPIC_ID if topic == "orders" else TOPIC_ID[::-1]
    batch.setdefault("transactional", False)
    records = build_batch([Record(0, NOW_MS, None, value, ())], **batch)
    data = [PartitionProduceData(index + n, records) for n in range(partitions)]
    named = (
        TopicProduceData(topic_id=topic_id, partition_data=data)
        if version >= 13
        else TopicProduceData(topic, partition_data=data)
    )
    request = ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[named])
    return b"".join(bytes(chunk) for chunk in encode_request(ApiKey.PRODUCE, version, correlation_id, "tests", request))


def offset_position(reply: bytes) -> int:
    """Where the base offset stands in a version 8 reply about the topic "orders"."""
    return reply.index(b"orders") + len(b"orders") + 4 + 4 + 2


def run(repeated: RepeatedProduce, data: bytes) -> tuple[int, bytes]:
    out = bytearray()
    return repeated.run(memoryview(bytearray(data)), 0, len(data), out, 512, 0x7FFFFFFF), bytes(out)


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("value", [b"", b"x" * 200, b"y" * 20_000])
def test_the_same_bytes_as_the_full_way(broker: Broker, version: int, acks: int, value: bytes) -> None:
    repeated = broker.repeated(version)
    broker.full(frame(version, acks=acks), repeated, version)
    other = frame(version, acks=acks, correlation_id=77, value=value)
    stop, short = run(repeated, other)
    assert stop == len(other)
    full = broker.full(other, version=version)
    # The second append got the next offset; everything else is equal.
    assert len(short) == len(full)
    assert [n for n in range(len(full)) if short[n] != full[n]] == [full.index((2).to_bytes(8, "big")) + 7]
    log = broker.partition().log
    assert log.log_end_offset == log.high_watermark == 3


def test_several_partitions_and_requests_in_one_turn(broker: Broker) -> None:
    repeated = broker.repeated()
    for index in range(2):
        broker.full(frame(index=index), repeated)
    data = b"".join(frame(index=n % 2, correlation_id=n) for n in range(10))
    stop, replies = run(repeated, data)
    assert stop == len(data)
    size = len(replies) // 10
    assert [int.from_bytes(replies[n * size + 4 : n * size + 8], "big") for n in range(10)] == list(range(10))
    assert [broker.partition(index=n).log.log_end_offset for n in range(2)] == [6, 6]


def test_many_requests_of_one_partition_in_one_turn(broker: Broker) -> None:
    repeated = broker.repeated()
    broker.full(frame(), repeated)
    requests = [frame(correlation_id=n, value=b"v" * (n * 13 % 300)) for n in range(100)]
    stop, together = run(repeated, b"".join(requests))
    assert stop == sum(map(len, requests))
    replies = b"".join(run(repeated, each)[1] for each in requests)
    assert len(together) == len(replies)
    size = len(replies) // 100
    for n in range(100):
        first, second = together[n * size :][:size], replies[n * size :][:size]
        at = offset_position(first)
        assert first[:at] + (101 + n).to_bytes(8, "big") + first[at + 8 :] == second
    headers = [header for _, header in iter_headers(read_log(broker))]
    assert [header.base_offset for header in headers] == list(range(201))


def test_a_bad_request_among_many_takes_the_full_way(broker: Broker) -> None:
    repeated = broker.repeated()
    broker.full(frame(), repeated)
    requests = [bytearray(frame(correlation_id=n)) for n in range(10)]
    requests[6][-1] ^= 1
    stop, replies = run(repeated, b"".join(requests))
    assert stop == sum(map(len, requests[:6]))
    assert len(replies) == 6 * len(broker.full(frame()))
    assert broker.partition().log.log_end_offset == 8


def read_log(broker: Broker) -> bytes:
    found = broker.partition().log.read(0, 1 << 20, 1 << 40)
    assert found.range is not None
    return bytes(found.range.read())


def test_an_unfinished_request_waits(broker: Broker) -> None:
    repeated = broker.repeated()
    broker.full(frame(), repeated)
    whole, part = frame(), frame()
    for cut in range(len(part)):
        stop, _ = run(repeated, whole + part[:cut])
        assert stop == len(whole)


def _tagged(data: bytes) -> bytes:
    """The same request of a flexible version, with an unknown tag at its end."""
    return (len(data) - 4 + 3).to_bytes(4, "big") + data[4:-1] + b"\x01\x63\x01\x00"


@pytest.mark.parametrize(
    ("label", "version", "other"),
    [
        ("another version", 8, frame(7)),
        ("other acks", 8, frame(acks=1)),
        ("no acks", 8, frame(acks=0)),
        ("another topic", 8, frame(topic="a longer name")),
        ("two partitions", 8, frame(partitions=2)),
        ("a transactional batch", 8, frame(transactional=True, producer_id=4, producer_epoch=0, base_sequence=0)),
        ("a control batch", 8, frame(control=True)),
        ("an unknown tag", 9, _tagged(frame(9))),
        ("bytes behind it", 8, (len(frame()) - 3).to_bytes(4, "big") + frame()[4:] + b"\x00"),
        ("a broken checksum", 8, frame()[:-1] + b"\x01"),
        ("no records", 8, encode(ProduceRequest(), 8)),
    ],
)
def test_what_differs_takes_the_full_way(broker: Broker, label: str, version: int, other: bytes) -> None:
    repeated = broker.repeated(version)
    broker.full(frame(version), repeated, version)
    good = frame(version)
    assert run(repeated, good + other)[0] == len(good)
    assert broker.partition().log.log_end_offset == 2


def test_nothing_is_learned_from_a_refusal(broker: Broker) -> None:
    repeated = broker.repeated()
    broker.full(frame(acks=3), repeated)
    broker.full(frame(control=True), repeated)
    assert run(repeated, frame(acks=3)) == (0, b"")
    assert run(repeated, frame()) == (0, b"")


def test_a_partition_that_stops_leading_is_left_to_the_full_way(broker: Broker) -> None:
    repeated = broker.repeated()
    broker.full(frame(), repeated)
    broker.partition().become_follower(8, 2)
    assert run(repeated, frame()) == (0, b"")


def _never_flushed(broker: Broker) -> list[Any]:
    """From now on the first partition's acknowledgements wait for a flush, which only the test does."""
    asked: list[Any] = []
    log = broker.partition().log
    log.environment.request_flush = lambda log, up_to=None: asked.append(log)  # type: ignore[method-assign]
    log.update_config(LogConfig(flush_messages=1))
    return asked


@pytest.mark.parametrize("acks", [1, -1])
def test_replies_wait_for_the_flush_in_the_order_of_their_requests(broker: Broker, acks: int) -> None:
    repeated = broker.repeated()
    broker.full(frame(acks=acks, index=1), repeated)
    broker.full(frame(acks=acks), repeated)
    asked = _never_flushed(broker)
    data = frame(acks=acks, correlation_id=1) + frame(acks=acks, index=1, correlation_id=2)
    assert run(repeated, data) == (len(data), b"")
    waiting, behind = broker.connection.pending
    assert asked
    assert waiting.chunks is None
    assert int.from_bytes(behind.chunks[0][4:8], "big") == 2, "done, but not the first in line"
    log = broker.partition().log
    log.flush()
    assert broker.settled == [waiting]
    assert int.from_bytes(waiting.chunks[0][4:8], "big") == 1
    log.update_config(LogConfig())
    full = broker.full(frame(acks=acks, correlation_id=1))
    at = offset_position(full)
    assert waiting.chunks[0] == full[:at] + (1).to_bytes(8, "big") + full[at + 8 :]


def test_a_reply_that_waits_too_long(broker: Broker) -> None:
    repeated = broker.repeated()
    broker.full(frame(), repeated)
    _never_flushed(broker)
    run(repeated, frame(correlation_id=1) + frame(correlation_id=2))
    ((when, job),) = broker.timers
    assert when == broker.now_s + 30
    broker.timers.clear()
    broker.now_s = when
    job()
    for number, reply in enumerate(broker.connection.pending, 1):
        answer = reply.chunks[0]
        at = offset_position(answer)
        assert int.from_bytes(answer[4:8], "big") == number
        assert int.from_bytes(answer[at - 2 : at], "big") == ErrorCode.REQUEST_TIMED_OUT
        assert int.from_bytes(answer[at : at + 8], "big") == number
    assert not broker.partition().waiters.acks
    assert not broker.timers


def test_a_reply_that_waits_when_leadership_ends(broker: Broker) -> None:
    repeated = broker.repeated()
    broker.full(frame(), repeated)
    _never_flushed(broker)
    run(repeated, frame())
    broker.partition().become_follower(8, 2)
    (reply,) = broker.connection.pending
    answer = reply.chunks[0]
    at = offset_position(answer)
    assert int.from_bytes(answer[at - 2 : at], "big") == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_no_more_replies_wait_than_there_is_room_for(broker: Broker) -> None:
    repeated = broker.repeated()
    broker.full(frame(), repeated)
    _never_flushed(broker)
    data = memoryview(bytearray(frame() * 5))
    assert repeated.run(data, 0, len(data), bytearray(), 3, 0x7FFFFFFF) == 3 * len(frame())
    assert len(broker.connection.pending) == 3


def test_a_recreated_topic_is_learned_anew(broker: Broker) -> None:
    repeated = broker.repeated()
    broker.full(frame(), repeated)
    log = broker.partition().log
    broker.replicas.remove("orders", 0)
    again = broker.replicas.add("orders", 0, TOPIC_ID, log)
    again.become_leader(9, (1,))
    assert run(repeated, frame()) == (0, b"")
    broker.full(frame(), repeated)
    assert run(repeated, frame())[0] == len(frame())


def test_a_producer_that_moves_on_to_another_topic(broker: Broker) -> None:
    repeated = broker.repeated()
    broker.full(frame(), repeated)
    other = frame(topic="a longer name")
    for _ in range(20):
        broker.full(other, repeated)
    assert run(repeated, other)[0] == len(other)
    assert run(repeated, frame())[0] == 0


def test_duplicates_of_an_idempotent_producer_keep_their_offset(broker: Broker) -> None:
    repeated = broker.repeated()
    batch = {"producer_id": 9, "producer_epoch": 0}
    broker.full(frame(base_sequence=0, **batch), repeated)
    data = frame(base_sequence=1, **batch) + frame(base_sequence=1, **batch)
    stop, replies = run(repeated, data)
    assert stop == len(data)
    half = len(replies) // 2
    at = offset_position(replies)
    assert replies[at : at + 8] == replies[half + at : half + at + 8] == (1).to_bytes(8, "big")
    assert broker.partition().log.log_end_offset == 2
