"""Fetch over a real socket from real logs: limits, isolation, long polls, epochs, sessions."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from pylogd.runtime.files import ColdRead, FileRange
from support.datanode import DataNode
from support.produce import fetch_request, produce_request, records, values
from support.rawclient import Client


@pytest.fixture
def client(node: DataNode) -> Iterator[Client]:
    with node.client() as made:
        yield made


def only(response: Any) -> Any:
    return response.responses[0].partitions[0]


def fill(client: Client, topic: str, *batches: list[bytes], index: int = 0) -> None:
    for values_ in batches:
        client.ask(produce_request(topic, records(*values_), index), 9)


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_reads(node: DataNode, client: Client, version: int) -> None:
    topic_id = node.create_topic("t")
    fill(client, "t", [b"a", b"b"], [b"c"])
    response = client.ask(fetch_request("t", 0, topic_id=topic_id if version >= 13 else bytes(16)), version)
    data = only(response)
    assert (data.error_code, data.high_watermark, data.last_stable_offset) == (0, 3, 3)
    assert values(data.records) == [b"a", b"b", b"c"]
    assert data.aborted_transactions is None
    if version >= 13:
        assert response.responses[0].topic_id == topic_id
    else:
        assert response.responses[0].topic == "t"


def test_an_offset_inside_a_batch_gives_the_whole_batch(node: DataNode, client: Client) -> None:
    node.create_topic("t")
    fill(client, "t", [b"a", b"b", b"c"], [b"d"])
    assert values(only(client.ask(fetch_request("t", 2), 12)).records) == [b"a", b"b", b"c", b"d"]
    assert values(only(client.ask(fetch_request("t", 3), 12)).records) == [b"d"]


def test_offsets_out_of_range(node: DataNode, client: Client) -> None:
    node.create_topic("t")
    fill(client, "t", [b"a", b"b", b"c"], [b"d"])
    node.call(node.partition("t").log.delete_records_before, 2)
    for offset, code in ((0, 1), (1, 1), (2, 0), (4, 0), (5, 1), (-1, 1)):
        data = only(client.ask(fetch_request("t", offset), 12))
        assert data.error_code == code, offset
        assert data.high_watermark == (-1 if code else 4)
        assert data.log_start_offset == (-1 if code else 2)


def test_limits_and_at_least_one_batch(node: DataNode, client: Client) -> None:
    node.create_topic("t", 2)
    one = len(records(b"x" * 100))
    for index in (0, 1):
        fill(client, "t", *[[b"x" * 100]] * 10, index=index)

    def count(max_bytes: int, partition_bytes: int) -> list[int]:
        request = fetch_request("t", 0, max_bytes=max_bytes, partition_bytes=partition_bytes)
        second = FetchPartition(partition=1, fetch_offset=0, partition_max_bytes=partition_bytes)
        request.topics[0].partitions.append(second)
        return [len(values(part.records)) for part in client.ask(request, 12).responses[0].partitions]

    assert count(1 << 20, 1 << 20) == [10, 10]
    assert count(1 << 20, 3 * one) == [3, 3]
    assert count(1 << 20, 3 * one + 5) == [3, 3]
    assert count(4 * one, 3 * one) == [3, 1]
    assert count(1, 1) == [1, 0]
    assert count(1 << 20, 1) == [1, 0]
    assert count(0, 0) == [1, 0]
    for version in (4, 12, 17):
        request = fetch_request("t", 0, topic_id=node.image.topics["t"].id, partition_bytes=-1)
        assert only(client.ask(request, version)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        request.isolation_level = 2
        answer = client.ask(request, version)
        # Where there is no place for it at the top, every partition carries the error.
        code = answer.error_code if version >= 13 else only(answer).error_code
        assert code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_long_poll_ends_with_new_data(node: DataNode, client: Client) -> None:
    node.create_topic("t")
    with node.client() as producer:
        client.send(fetch_request("t", 0, wait_ms=30_000), 12)
        fill(producer, "t", [b"a"])
        assert values(only(client.reply()).records) == [b"a"]
        assert not node.partition("t").waiters.fetches


def test_a_long_poll_waits_for_min_bytes(node: DataNode, client: Client) -> None:
    node.create_topic("t")
    one = len(records(b"x"))
    with node.client() as producer:
        client.send(fetch_request("t", 0, wait_ms=30_000, min_bytes=3 * one), 12)
        for _ in range(3):
            fill(producer, "t", [b"x"])
        assert len(values(only(client.reply()).records)) == 3


def test_a_long_poll_ends_with_its_time(node: DataNode, client: Client) -> None:
    node.create_topic("t")
    started = time.monotonic()
    data = only(client.ask(fetch_request("t", 0, wait_ms=50), 12))
    assert time.monotonic() - started >= 0.04
    assert (data.error_code, values(data.records)) == (0, [])
    assert not node.partition("t").waiters.fetches


def test_a_long_poll_ends_when_the_leader_moves(node: DataNode, client: Client) -> None:
    topic_id = node.create_topic("t")
    client.send(fetch_request("t", 0, wait_ms=30_000, leader_epoch=0, topic_id=topic_id), 16)
    while not node.partition("t").waiters.fetches:
        time.sleep(0.001)
    node.call(node.partition("t").become_leader, 4, (1,), (1,), 1)
    response = client.reply()
    data = only(response)
    assert data.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (1, 4)
    assert [(e.node_id, e.port) for e in response.node_endpoints] == [(1, node.port)]


def test_a_client_that_leaves_a_long_poll_is_forgotten(node: DataNode) -> None:
    node.create_topic("t")
    with node.client() as leaving:
        leaving.send(fetch_request("t", 0, wait_ms=30_000), 12)
        while not node.partition("t").waiters.fetches:
            time.sleep(0.001)
    while node.partition("t").waiters.fetches:
        time.sleep(0.001)


def test_many_long_polls_are_served_by_one_append(node: DataNode, client: Client) -> None:
    node.create_topic("t")
    clients = [node.client() for _ in range(20)]
    for waiting in clients:
        waiting.send(fetch_request("t", 0, wait_ms=30_000), 12)
    while len(node.partition("t").waiters.fetches) < 20:
        time.sleep(0.001)
    fill(client, "t", [b"a"])
    for waiting in clients:
        assert values(only(waiting.reply()).records) == [b"a"]
        waiting.socket.close()


@pytest.mark.parametrize(
    ("epoch", "code"), [(0, ErrorCode.FENCED_LEADER_EPOCH), (3, ErrorCode.NONE), (9, ErrorCode.UNKNOWN_LEADER_EPOCH)]
)
def test_epochs_are_fenced(node: DataNode, client: Client, epoch: int, code: ErrorCode) -> None:
    node.create_topic("t")
    node.call(node.partition("t").become_leader, 3, (1,), (1,), 1)
    assert only(client.ask(fetch_request("t", 0, leader_epoch=epoch), 12)).error_code == code


def test_a_diverging_reader_is_told_where(node: DataNode, client: Client) -> None:
    node.create_topic("t")
    fill(client, "t", [b"a"], [b"b"])
    node.call(node.partition("t").become_leader, 5, (1,), (1,), 1)
    fill(client, "t", [b"c"])
    data = only(client.ask(fetch_request("t", 3, last_fetched_epoch=2, wait_ms=30_000), 12))
    assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 2)
    assert values(data.records) == []
    data = only(client.ask(fetch_request("t", 1, last_fetched_epoch=0), 12))
    assert values(data.records) == [b"b", b"c"]


def test_topics_that_are_not_here(node: DataNode, client: Client) -> None:
    node.create_topic("elsewhere", leader=2)
    topic_id = node.create_topic("t")
    assert only(client.ask(fetch_request("missing", 0), 12)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert only(client.ask(fetch_request("t", 0, 7), 12)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert only(client.ask(fetch_request("elsewhere", 0), 12)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert only(client.ask(fetch_request("", 0, topic_id=b"?" * 16), 13)).error_code == ErrorCode.UNKNOWN_TOPIC_ID

    def recreate() -> None:
        # The name has a new id in the cluster, the replica here still belongs to the old one.
        topic = node.image.topics_by_id.pop(topic_id)
        topic.id = b"new" + bytes(13)
        node.image.topics_by_id[topic.id] = topic

    node.call(recreate)
    fresh = only(client.ask(fetch_request("", 0, topic_id=b"new" + bytes(13)), 13))
    assert fresh.error_code == ErrorCode.INCONSISTENT_TOPIC_ID


def test_unknown_topics_do_not_end_a_long_poll(node: DataNode, client: Client) -> None:
    node.create_topic("t")
    request = fetch_request("t", 0, wait_ms=30_000)
    request.topics.append(FetchTopic(topic="gone", partitions=[FetchPartition(partition=0, partition_max_bytes=100)]))
    client.send(request, 12)
    while not node.partition("t").waiters.fetches:
        time.sleep(0.001)
    with node.client() as producer:
        fill(producer, "t", [b"a"])
    answers = client.reply().responses
    assert [(topic.topic, topic.partitions[0].error_code) for topic in answers] == [("t", 0), ("gone", 3)]


def test_read_committed_stops_at_the_last_stable_offset(node: DataNode, client: Client) -> None:
    node.create_topic("t")
    fill(client, "t", [b"a"])
    log = node.partition("t").log
    marker = _transaction(node, log)
    data = only(client.ask(fetch_request("t", 0, isolation=1), 12))
    assert (values(data.records), data.last_stable_offset, data.high_watermark) == ([b"a"], 1, 2)
    assert data.aborted_transactions == []
    marker()
    data = only(client.ask(fetch_request("t", 0, isolation=1), 12))
    assert data.last_stable_offset == 3
    assert [(found.producer_id, found.first_offset) for found in data.aborted_transactions] == [(50, 1)]
    uncommitted = only(client.ask(fetch_request("t", 0, isolation=0), 12))
    assert uncommitted.aborted_transactions is None


def _transaction(node: DataNode, log: Any) -> Any:
    """An open transaction at the log end; the returned function aborts it."""
    from pylogd.protocol import control
    from pylogd.storage.validation import Origin

    partition = node.partition("t")
    data = bytearray(records(b"t", producer_id=50, producer_epoch=0, base_sequence=0, transactional=True))
    node.call(lambda: partition.append(memoryview(data), now_ms=node.clock.now_ms()))

    def abort() -> None:
        made = control.end_txn_batch(
            commit=False, coordinator_epoch=0, producer_id=50, producer_epoch=0, timestamp_ms=node.clock.now_ms()
        )
        node.call(lambda: partition.append(memoryview(made), now_ms=node.clock.now_ms(), origin=Origin.COORDINATOR))

    return abort


class Session:
    """The client's side of an incremental session."""

    def __init__(self, client: Client, version: int = 12) -> None:
        self.client = client
        self.version = version
        self.id = 0
        self.epoch = 0

    def fetch(self, *wanted: tuple[str, int], forget: tuple[str, ...] = (), wait_ms: int = 0) -> dict[str, Any]:
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            session_id=self.id,
            session_epoch=self.epoch,
            topics=[
                FetchTopic(
                    topic=topic,
                    partitions=[FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)],
                )
                for topic, offset in wanted
            ],
            forgotten_topics_data=[ForgottenTopic(topic=topic, partitions=[0]) for topic in forget],
        )
        response = self.client.ask(request, self.version)
        self.error = response.error_code
        if not response.error_code:
            self.id = response.session_id
            self.epoch += 1
        return {topic.topic: topic.partitions[0] for topic in response.responses}


def test_a_session_tells_only_what_changed(node: DataNode, client: Client) -> None:
    for name in ("a", "b"):
        node.create_topic(name)
    session = Session(client)
    assert set(session.fetch(("a", 0), ("b", 0))) == {"a", "b"}
    assert session.id != 0
    assert session.fetch() == {}
    fill(client, "a", [b"1"])
    answer = session.fetch()
    assert {name: values(part.records) for name, part in answer.items()} == {"a": [b"1"]}
    assert session.fetch(("a", 1)) == {}
    # A moved start is news without data.
    node.call(node.partition("a").log.delete_records_before, 1)
    assert session.fetch()["a"].log_start_offset == 1
    assert session.fetch() == {}


def test_partitions_join_and_leave_a_session(node: DataNode, client: Client) -> None:
    for name in ("a", "b"):
        node.create_topic(name)
        fill(client, name, [b"1"])
    session = Session(client)
    session.fetch(("a", 1))
    assert values(session.fetch(("b", 0))["b"].records) == [b"1"]
    session.fetch(("b", 1), forget=("a",))
    fill(client, "a", [b"2"])
    fill(client, "b", [b"2"])
    assert set(session.fetch()) == {"b"}
    # Without partitions a session ends.
    assert session.fetch(forget=("b",)) == {}
    assert len(node.sessions) == 0


def test_errors_are_told_until_they_are_gone_and_once_after(node: DataNode, client: Client) -> None:
    node.create_topic("a")
    session = Session(client)
    session.fetch(("a", 0), ("b", 0))
    assert session.fetch()["b"].error_code == 3
    assert session.fetch()["b"].error_code == 3
    node.create_topic("b")
    assert session.fetch()["b"].error_code == 0
    assert session.fetch() == {}


def test_a_session_out_of_step_is_refused(node: DataNode, client: Client) -> None:
    node.create_topic("a")
    session = Session(client)
    session.fetch(("a", 0))
    session.epoch = 7
    session.fetch()
    assert session.error == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    session.id, session.epoch = 12345, 1
    session.fetch()
    assert session.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_keeps_its_kind_of_topic_names(node: DataNode, client: Client) -> None:
    node.create_topic("a")
    session = Session(client)
    session.fetch(("a", 0))
    session.version = 13
    session.fetch()
    assert session.error == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_full_fetch_ends_the_session_it_names(node: DataNode, client: Client) -> None:
    node.create_topic("a")
    session = Session(client)
    session.fetch(("a", 0))
    session.epoch = -1
    session.fetch(("a", 0))
    assert session.id == 0
    assert len(node.sessions) == 0


def test_an_unknown_topic_id_is_resolved_later(node: DataNode, client: Client) -> None:
    topic_id = b"later".ljust(16, b"\0")
    first = client.ask(fetch_request("", 0, topic_id=topic_id, session=(0, 0)), 13)
    assert only(first).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert node.create_topic("later") == topic_id
    again = FetchRequest(session_id=first.session_id, session_epoch=1)
    assert only(client.ask(again, 13)).error_code == 0


def test_old_segments_are_read_through_the_index(node: DataNode, client: Client) -> None:
    node.create_topic("t", segment_bytes=4000, index_interval_bytes=200)
    for n in range(200):
        fill(client, "t", [b"%06d" % n * 20])
    read: list[bytes | None] = []
    while len(read) < 200:
        data = only(client.ask(fetch_request("t", len(read), partition_bytes=1500), 12))
        found = values(data.records)
        assert found
        read += found
    assert read == [b"%06d" % n * 20 for n in range(200)]


def test_a_cold_start_of_a_read_is_found_by_a_worker(node: DataNode, client: Client, monkeypatch: Any) -> None:
    node.create_topic("t", segment_bytes=4000, index_interval_bytes=200)
    for n in range(60):
        fill(client, "t", [b"%06d" % n * 20])
    log = node.partition("t").log
    threads: list[str] = []

    class Cold:
        """The log as it looks when nothing of it is in memory, until a worker has read it."""

        def __getattr__(self, name: str) -> Any:
            return getattr(log, name)

        def read(self, offset: int, max_bytes: int, ceiling: int, one: bool, nowait: bool) -> Any:
            if nowait and not threads:
                raise ColdRead(ColdRange(log.active.file, 0, 100))
            return log.read(offset, max_bytes, ceiling, one, nowait)

    class ColdRange(FileRange):
        def warm(self) -> None:
            super().warm()
            threads.append(threading.current_thread().name)

    node.partition("t")._log = Cold()
    assert values(only(client.ask(fetch_request("t", 3), 12)).records)[0] == b"000003" * 20
    assert len(threads) == 1
    assert "worker" in threads[0]


def test_followers_read_to_the_log_end_and_move_the_watermark(node: DataNode, client: Client) -> None:
    node.create_topic("t")
    node.call(node.partition("t").become_leader, 1, (1, 2), (1, 2), 1)
    client.ask(produce_request("t", records(b"a", b"b"), acks=1), 9)
    assert only(client.ask(fetch_request("t", 0), 12)).high_watermark == 0
    follower = only(client.ask(fetch_request("t", 0, replica_id=2, leader_epoch=1), 12))
    assert (values(follower.records), follower.high_watermark) == ([b"a", b"b"], 0)
    assert only(client.ask(fetch_request("t", 2, replica_id=2, leader_epoch=1), 12)).high_watermark == 2
    stranger = only(client.ask(fetch_request("t", 0, replica_id=3, leader_epoch=1), 12))
    assert stranger.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_partition_that_comes_while_a_follower_waits_is_watched(node: DataNode, client: Client) -> None:
    """The follower has heard of it first; once the leader has it too, its records reach the follower."""
    session_id = 0

    def ask(epoch: int, *names: str, wait_ms: int = 0) -> FetchRequest:
        asked = FetchPartition(partition=0, current_leader_epoch=1, fetch_offset=0, partition_max_bytes=1 << 20)
        return FetchRequest(
            replica_state=ReplicaState(2, -1),
            max_wait_ms=wait_ms,
            min_bytes=1,
            session_id=session_id,
            session_epoch=epoch,
            topics=[FetchTopic(topic_id=name.encode().ljust(16, b"\0"), partitions=[asked]) for name in names],
        )

    def lead(name: str) -> None:
        node.create_topic(name)
        node.call(node.partition(name).become_leader, 1, (1, 2), (1, 2), 1)

    lead("a")
    session_id = client.ask(ask(0, "a"), 17).session_id
    client.send(ask(1, "b", wait_ms=500), 17)
    lead("b")
    assert not any(part.records for topic in client.reply().responses for part in topic.partitions)
    with node.client() as other:
        fill(other, "b", [b"x"])
    (topic,) = client.ask(ask(2), 17).responses
    assert (topic.topic_id, values(topic.partitions[0].records)) == (b"b".ljust(16, b"\0"), [b"x"])
