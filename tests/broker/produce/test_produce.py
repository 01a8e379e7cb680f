"""Produce over a real socket to real logs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pylogd.protocol import batch
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from support.datanode import DataNode
from support.produce import NOW_MS, fetch_request, produce_request, records, values
from support.rawclient import Client, Closed


def only(response: Any) -> Any:
    return response.responses[0].partition_responses[0]


def outcome(answer: Any) -> tuple[str, int, int]:
    return ErrorCode(answer.error_code).name, answer.base_offset, answer.log_start_offset


@pytest.fixture
def client(node: DataNode) -> Iterator[Client]:
    with node.client() as made:
        yield made


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [1, -1])
def test_every_version_appends(node: DataNode, client: Client, version: int, acks: int) -> None:
    topic_id = node.create_topic("t")
    for expected in (0, 2, 4, 6):
        answer = only(client.ask(produce_request("t", records(b"a", b"b"), acks=acks, topic_id=topic_id), version))
        assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, expected, -1)
        assert answer.log_start_offset == (0 if version >= 5 else -1)
    data = client.ask(fetch_request("t", 0), 12).responses[0].partitions[0]
    assert values(data.records) == [b"a", b"b"] * 4
    assert data.high_watermark == 8


def test_the_reply_names_topics_as_the_request_did(node: DataNode, client: Client) -> None:
    topic_id = node.create_topic("t")
    assert client.ask(produce_request("t", records(b"a")), 9).responses[0].name == "t"
    assert client.ask(produce_request("", records(b"a"), topic_id=topic_id), 13).responses[0].topic_id == topic_id


def test_acks_0_has_no_reply(node: DataNode, client: Client) -> None:
    node.create_topic("t")
    for _ in range(3):
        client.send(produce_request("t", records(b"a"), acks=0), 9)
        client.skip_reply()
    assert only(client.ask(produce_request("t", records(b"b")), 9)).base_offset == 3


def test_acks_0_with_an_error_hangs_up(node: DataNode, client: Client) -> None:
    client.send(produce_request("missing", records(b"a"), acks=0), 9)
    assert client.is_closed()


REFUSALS: list[tuple[str, Any, tuple[str, int, int]]] = [
    ("unknown topic", lambda: produce_request("missing", records(b"a")), ("UNKNOWN_TOPIC_OR_PARTITION", -1, -1)),
    ("unknown partition", lambda: produce_request("t", records(b"a"), 7), ("UNKNOWN_TOPIC_OR_PARTITION", -1, -1)),
    ("elsewhere", lambda: produce_request("other", records(b"a")), ("NOT_LEADER_OR_FOLLOWER", -1, -1)),
    ("acks 2", lambda: produce_request("t", records(b"a"), acks=2), ("INVALID_REQUIRED_ACKS", -1, -1)),
    ("acks -2", lambda: produce_request("t", records(b"a"), acks=-2), ("INVALID_REQUIRED_ACKS", -1, -1)),
    ("no batch", lambda: produce_request("t", b""), ("INVALID_RECORD", -1, -1)),
    ("two batches", lambda: produce_request("t", records(b"a") * 2), ("INVALID_RECORD", -1, -1)),
    ("torn", lambda: produce_request("t", records(b"a")[:-1]), ("INVALID_RECORD", -1, -1)),
    ("bad crc", lambda: produce_request("t", records(b"a")[:-1] + b"!"), ("CORRUPT_MESSAGE", -1, -1)),
    ("null records", lambda: produce_request("t", None), ("UNKNOWN_SERVER_ERROR", -1, -1)),
    ("control", lambda: produce_request("t", records(b"a", control=True)), ("INVALID_RECORD", -1, 0)),
    ("internal", lambda: produce_request("__consumer_offsets", records(b"a")), ("INVALID_TOPIC_EXCEPTION", -1, -1)),
    ("compacted", lambda: produce_request("compacted", keyless()), ("INVALID_RECORD", -1, 0)),
    (
        "no transactional id",
        lambda: produce_request("t", transactional()),
        ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", -1, -1),
    ),
    (
        "no coordinator",
        lambda: produce_request("t", transactional(), transactional_id="x"),
        ("NOT_ENOUGH_REPLICAS", -1, -1),
    ),
]


def transactional() -> bytes:
    return records(b"a", producer_id=4, producer_epoch=0, base_sequence=0, transactional=True)


def keyless() -> bytes:
    return bytes(batch.build_batch([batch.Record(0, NOW_MS, None, b"v", [])]))


@pytest.mark.parametrize(("request_", "expected"), [row[1:] for row in REFUSALS], ids=[row[0] for row in REFUSALS])
def test_refusals_stay_refusals(node: DataNode, client: Client, request_: Any, expected: tuple[str, int, int]) -> None:
    node.create_topic("t")
    node.create_topic("other", leader=2)
    node.create_topic("__consumer_offsets")
    node.create_topic("compacted", cleanup_policy=("compact",))
    # Again and again: no shortcut may let a refused request in.
    for _ in range(3):
        assert outcome(only(client.ask(request_(), 12))) == expected
    assert node.partition("t").log.log_end_offset == 0


def test_refused_records_are_named(node: DataNode, client: Client) -> None:
    node.create_topic("t", cleanup_policy=("compact",))
    answer = only(client.ask(produce_request("t", keyless()), 8))
    assert [error.batch_index for error in answer.record_errors] == [0]
    assert answer.error_message


def test_unknown_topic_id(node: DataNode, client: Client) -> None:
    answer = only(client.ask(produce_request("", records(b"a"), topic_id=b"x" * 16), 13))
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_batch_above_the_limit(node: DataNode, client: Client) -> None:
    node.create_topic("t", max_message_bytes=500)
    answer = only(client.ask(produce_request("t", records(b"a" * 1000)), 12))
    assert outcome(answer) == ("MESSAGE_TOO_LARGE", -1, -1)


def test_zstd_needs_version_7(node: DataNode, client: Client) -> None:
    node.create_topic("t")
    data = records(b"a" * 100, compression=4)
    assert only(client.ask(produce_request("t", data), 6)).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert only(client.ask(produce_request("t", data), 7)).error_code == 0


def test_the_current_leader_comes_with_the_error(node: DataNode, client: Client) -> None:
    node.create_topic("t", leader=1)
    node.call(node.partition("t").become_follower, 5, 1, (1,))
    response = client.ask(produce_request("t", records(b"a")), 10)
    leader = only(response).current_leader
    assert (leader.leader_id, leader.leader_epoch) == (1, 5)
    assert [(e.node_id, e.host, e.port) for e in response.node_endpoints] == [(1, "127.0.0.1", node.port)]


def test_partitions_succeed_and_fail_on_their_own(node: DataNode, client: Client) -> None:
    node.create_topic("t", 2)
    parts = [PartitionProduceData(index=index, records=records(b"a")) for index in (0, 5, 1)]
    request = ProduceRequest(acks=-1, timeout_ms=100, topic_data=[TopicProduceData(name="t", partition_data=parts)])
    answers = client.ask(request, 9).responses[0].partition_responses
    assert [(a.index, a.error_code) for a in answers] == [(0, 0), (5, 3), (1, 0)]


def test_log_append_time_is_reported(node: DataNode, client: Client) -> None:
    node.create_topic("t", message_timestamp_type="LogAppendTime")
    answer = only(client.ask(produce_request("t", records(b"a")), 9))
    assert answer.log_append_time_ms > NOW_MS
    data = client.ask(fetch_request("t", 0), 12).responses[0].partitions[0].records
    assert [record.timestamp for record in batch.iter_records(memoryview(bytes(data)))] == [answer.log_append_time_ms]


def test_duplicates_get_the_offset_of_the_original(node: DataNode, client: Client) -> None:
    node.create_topic("t")

    def send(sequence: int, epoch: int = 0) -> tuple[str, int, int]:
        data = records(b"a", producer_id=9, producer_epoch=epoch, base_sequence=sequence)
        return outcome(only(client.ask(produce_request("t", data), 9)))

    assert [send(n) for n in range(6)] == [("NONE", n, 0) for n in range(6)]
    assert send(5) == ("NONE", 5, 0)
    assert send(2) == ("NONE", 2, 0)
    assert send(0)[0] == "DUPLICATE_SEQUENCE_NUMBER" or send(0)[0] == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert send(8)[0] == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert send(0, epoch=1) == ("NONE", 6, 0)
    assert send(6, epoch=0)[0] == "INVALID_PRODUCER_EPOCH"


class Follower:
    """A second replica whose progress the test decides."""

    def __init__(self, node: DataNode, topic: str, **config: Any) -> None:
        node.create_topic(topic, **config)
        self.node = node
        self.partition = node.partition(topic)
        node.call(self.partition.become_leader, 1, (1, 2), (1, 2), 1)

    def reaches(self, offset: int) -> None:
        self.node.call(self.partition.follower_fetched, 2, -1, offset, 0, 0)


def test_acks_all_waits_for_the_watermark(node: DataNode, client: Client) -> None:
    follower = Follower(node, "t")
    client.send(produce_request("t", records(b"a", b"b")), 9)
    with node.client() as other:
        assert only(other.ask(produce_request("t", records(b"c"), acks=1), 9)).base_offset == 2
        high = other.ask(fetch_request("t", 0), 12).responses[0].partitions[0]
        assert (high.high_watermark, values(high.records)) == (0, [])
    follower.reaches(2)
    assert outcome(only(client.reply())) == ("NONE", 0, 0)
    assert follower.partition.high_watermark == 2


def test_a_producer_works_ahead_of_its_acknowledgements(node: DataNode, client: Client) -> None:
    follower = Follower(node, "t")
    for n in range(20):
        client.send(produce_request("t", records(b"%d" % n)), 9)
    client.send(fetch_request("t", 0), 12)
    with node.client() as other:
        # All are appended although none is acknowledged.
        while follower.partition.log.log_end_offset < 20:
            other.ask(fetch_request("t", 0), 12)
    follower.reaches(12)
    follower.reaches(20)
    assert [only(client.reply()).base_offset for _ in range(20)] == list(range(20))
    # The Fetch behind them started only after the last reply.
    assert client.reply().responses[0].partitions[0].high_watermark == 20


def test_acks_all_times_out(node: DataNode, client: Client) -> None:
    follower = Follower(node, "t")
    answer = only(client.ask(produce_request("t", records(b"a"), timeout_ms=20), 9))
    assert outcome(answer) == ("REQUEST_TIMED_OUT", 0, 0)
    assert not follower.partition.waiters.acks


def test_a_new_epoch_fails_who_waits(node: DataNode, client: Client) -> None:
    follower = Follower(node, "t")
    client.send(produce_request("t", records(b"a")), 10)
    with node.client() as other:
        while follower.partition.log.log_end_offset < 1:
            other.ask(fetch_request("t", 0), 12)
    node.call(follower.partition.become_follower, 2, 2, (2,))
    answer = only(client.reply())
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (2, 2)


def test_too_few_replicas_in_sync(node: DataNode, client: Client) -> None:
    follower = Follower(node, "t", min_insync_replicas=2)
    node.call(follower.partition.become_leader, 1, (1,), (1, 2), 2)
    assert outcome(only(client.ask(produce_request("t", records(b"a")), 9)))[0] == "NOT_ENOUGH_REPLICAS"
    assert outcome(only(client.ask(produce_request("t", records(b"a"), acks=1), 9)))[0] == "NONE"


def test_replicas_lost_after_the_append(node: DataNode, client: Client) -> None:
    follower = Follower(node, "t", min_insync_replicas=2)
    client.send(produce_request("t", records(b"a")), 9)
    with node.client() as other:
        while follower.partition.log.log_end_offset < 1:
            other.ask(fetch_request("t", 0), 12)

    def shrink() -> None:
        follower.partition.follower_fetched(2, -1, 0, 0, 0)
        follower.partition.log.config.min_insync_replicas = 1
        follower.partition.become_leader(1, (1,), (1, 2), 2)

    node.call(shrink)
    assert outcome(only(client.reply()))[0] == "NONE"


@pytest.mark.parametrize("acks", [1, -1])
def test_flush_gates_acknowledgements(node: DataNode, client: Client, acks: int) -> None:
    node.create_topic("t", flush_messages=1)
    log = node.partition("t").log
    for n in range(5):
        answer = only(client.ask(produce_request("t", records(b"a"), acks=acks), 9))
        assert outcome(answer) == ("NONE", n, 0)
        assert log.flushed_offset >= n + 1
        assert log.high_watermark >= n + 1


def test_an_offline_directory(node: DataNode, client: Client) -> None:
    follower = Follower(node, "t")
    client.send(produce_request("t", records(b"a")), 9)
    with node.client() as other:
        while follower.partition.log.log_end_offset < 1:
            other.ask(fetch_request("t", 0), 12)
        node.call(node.replicas.directory_failed, [("t", 0)])
        assert outcome(only(client.reply()))[0] == "KAFKA_STORAGE_ERROR"
        assert outcome(only(other.ask(produce_request("t", records(b"a")), 9)))[0] == "KAFKA_STORAGE_ERROR"
        fetched = other.ask(fetch_request("t", 0), 12).responses[0].partitions[0]
        assert fetched.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert other.ask(fetch_request("t", 0), 5).responses[0].partitions[0].error_code == 6


def test_a_log_is_opened_on_first_use(node: DataNode, client: Client) -> None:
    topic_id = node.create_topic("t")
    client.ask(produce_request("t", records(b"a")), 9)
    log = node.partition("t").log
    opened: list[int] = []

    def reopen() -> None:
        node.replicas.remove("t", 0)
        lazy = node.replicas.add("t", 0, topic_id, lambda: opened.append(1) or log)
        lazy.become_leader(3, (1,), (1,), 0)

    node.call(reopen)
    assert opened == []
    assert only(client.ask(produce_request("t", records(b"b")), 9)).base_offset == 1
    assert opened == [1]
    assert log.offset_for_epoch(3) == (3, 2)


def test_a_log_that_cannot_be_opened(node: DataNode, client: Client) -> None:
    topic_id = node.create_topic("t")

    def fail() -> Any:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    def reopen() -> None:
        node.replicas.remove("t", 0)
        node.replicas.add("t", 0, topic_id, fail).become_leader(3, (1,), (1,), 0)

    node.call(reopen)
    assert outcome(only(client.ask(produce_request("t", records(b"b")), 9)))[0] == "KAFKA_STORAGE_ERROR"


def test_large_and_many(tmp_path: Path, node: DataNode, client: Client) -> None:
    node.create_topic("t", max_message_bytes=20_000_000)
    big = bytes(10_000_000)
    assert only(client.ask(produce_request("t", records(big)), 9)).error_code == 0
    assert only(client.ask(produce_request("t", records(b"x")), 9)).base_offset == 1
    request = fetch_request("t", 0, max_bytes=1, partition_bytes=1)
    assert values(client.ask(request, 12).responses[0].partitions[0].records) == [big]


def test_closing_in_the_middle_forgets_who_waits(node: DataNode) -> None:
    follower = Follower(node, "t")
    with node.client() as leaving, node.client() as other:
        leaving.send(produce_request("t", records(b"a")), 9)
        while follower.partition.log.log_end_offset < 1:
            other.ask(fetch_request("t", 0), 12)
        leaving.socket.close()
        while follower.partition.waiters.acks:
            other.ask(fetch_request("t", 0), 12)
        with pytest.raises((Closed, OSError)):
            leaving.frame()
