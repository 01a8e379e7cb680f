"""Markers on their way: who gets them, what is tried again, and when a transaction is complete."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pylogd.coordinators.transactions.markers import Markers
from pylogd.coordinators.transactions.transaction import Transaction, TxnState
from pylogd.metadata.registrations import Partition, Topic
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from pylogd.rpc.peer import PeerError

ME = 1


class Loop:
    """Runs what is due when it is told to; later is after what is soon."""

    def __init__(self) -> None:
        self.soon: list[Any] = []
        self.later: list[tuple[float, Any]] = []

    def call_soon(self, call: Any, *args: Any) -> None:
        self.soon.append(lambda: call(*args))

    def call_later(self, delay: float, call: Any, *args: Any) -> None:
        self.later.append((delay, lambda: call(*args)))

    def turn(self) -> None:
        calls, self.soon = self.soon, []
        for call in calls:
            call()

    def wait(self) -> list[float]:
        """Every timer fires; how long they were."""
        timers, self.later = self.later, []
        for _, call in timers:
            call()
        return [delay for delay, _ in timers]


class Peers:
    def __init__(self) -> None:
        self.asked: list[tuple[int, Any, Any]] = []

    def send(self, broker_id: int, request: Any, handler: Any) -> None:
        self.asked.append((broker_id, request, handler))

    def close(self) -> None:
        self.asked.clear()


class Stage:
    """A coordinator on broker 1 and topics t (led here) and u (led elsewhere)."""

    def __init__(self) -> None:
        self.appended: list[tuple[str, int, Any, Any]] = []
        local: Any = SimpleNamespace(append=lambda *marker: self.appended.append(marker))
        self.loop = Loop()
        self.topics: dict[str, Topic] = {}
        self.lead("t", ME)
        self.lead("u", 2)
        host: Any = SimpleNamespace(broker_id=ME, loop=self.loop)
        metadata: Any = SimpleNamespace(image=SimpleNamespace(topic=lambda name: self.topics.get(name)))
        self.completed: list[tuple[str, int, int]] = []
        state = SimpleNamespace(complete=lambda effects, *identity: self.completed.append(identity))
        self.shard = SimpleNamespace(active=True, state=state, epoch=5, run=lambda name, event: event(None))
        self.peers: Any = Peers()
        self.markers = Markers(host, metadata, local, self.peers)

    def lead(self, topic: str, leader: int) -> None:
        made = Topic(topic, topic.encode().ljust(16, b"\0"))
        made.partitions.append(Partition((1, 2, 3), (bytes(16),) * 3, (1, 2, 3), leader, 0, 0))
        self.topics[topic] = made

    def prepared(self, *topics: str, name: str = "x", producer_id: int = 9) -> Transaction:
        transaction = Transaction(name)
        transaction.state = TxnState.PREPARE_ABORT
        transaction.producer_id, transaction.producer_epoch = producer_id, 4
        transaction.client_version = 2
        transaction.unmarked = {(topic, 0): None for topic in topics}
        return transaction

    def send(self, transaction: Transaction) -> None:
        self.markers.send(self.shard, transaction)  # type: ignore[arg-type]
        self.loop.turn()

    def answer(self, *codes: tuple[int, str, ErrorCode], failure: PeerError | None = None) -> None:
        """The oldest request to another broker hears (producer, topic, code)."""
        _, _, handler = self.peers.asked.pop(0)
        results = [
            WritableTxnMarkerResult(
                producer_id,
                [WritableTxnMarkerTopicResult(topic, [WritableTxnMarkerPartitionResult(0, int(code))])],
            )
            for producer_id, topic, code in codes
        ]
        handler(None if failure else WriteTxnMarkersResponse(markers=results), failure)
        self.loop.turn()


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_here_and_elsewhere(stage: Stage) -> None:
    stage.send(stage.prepared("t", "u"))
    [(topic, index, marker, done)] = stage.appended
    assert (topic, index) == ("t", 0)
    assert marker == (9, 4, 5, False, 2)
    [(broker, request, _)] = stage.peers.asked
    assert broker == 2
    [sent] = request.markers
    assert (sent.producer_id, sent.producer_epoch, sent.coordinator_epoch) == (9, 4, 5)
    assert (sent.transaction_result, sent.transaction_version, sent.topics[0].name) == (False, 2, "u")
    done(ErrorCode.NONE)
    assert stage.completed == []
    stage.answer((9, "u", ErrorCode.NONE))
    assert stage.completed == [("x", 9, 4)]


def test_a_transaction_without_partitions_is_complete(stage: Stage) -> None:
    stage.send(stage.prepared())
    assert stage.completed == [("x", 9, 4)]


def test_one_request_per_broker_at_a_time(stage: Stage) -> None:
    stage.send(stage.prepared("u"))
    stage.send(stage.prepared("u", name="y", producer_id=10))
    stage.send(stage.prepared("u", name="z", producer_id=11))
    assert len(stage.peers.asked) == 1
    stage.answer((9, "u", ErrorCode.NONE))
    [(_, request, _)] = stage.peers.asked
    assert [marker.producer_id for marker in request.markers] == [10, 11]
    stage.answer((10, "u", ErrorCode.NONE), (11, "u", ErrorCode.NONE))
    assert [name for name, _, _ in stage.completed] == ["x", "y", "z"]


def test_what_passes_is_tried_again_where_the_leader_is_then(stage: Stage) -> None:
    stage.send(stage.prepared("u"))
    stage.answer((9, "u", ErrorCode.NOT_LEADER_OR_FOLLOWER))
    first = stage.loop.wait()
    stage.loop.turn()
    stage.answer(failure=PeerError("gone"))
    second = stage.loop.wait()
    assert first < second
    stage.loop.turn()
    stage.lead("u", ME)
    stage.answer()
    stage.loop.wait()
    [(topic, _, _, done)] = stage.appended
    assert topic == "u"
    done(ErrorCode.NONE)
    assert stage.completed == [("x", 9, 4)]


def test_a_partition_without_a_leader_waits_for_one(stage: Stage) -> None:
    stage.lead("u", -1)
    stage.send(stage.prepared("u"))
    stage.loop.wait()
    assert stage.peers.asked == []
    stage.lead("u", 3)
    stage.loop.wait()
    stage.loop.turn()
    assert [broker for broker, _, _ in stage.peers.asked] == [3]


def test_a_deleted_topic_needs_no_marker(stage: Stage) -> None:
    del stage.topics["u"]
    stage.send(stage.prepared("u"))
    assert stage.completed == [("x", 9, 4)]
    # Nor one that goes while its marker is refused.
    stage.send(stage.prepared("t", name="y"))
    del stage.topics["t"]
    stage.appended[0][3](ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    stage.loop.wait()
    assert stage.completed[1:] == [("y", 9, 4)]


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED])
def test_who_is_fenced_leaves_it_to_the_others(stage: Stage, code: ErrorCode) -> None:
    stage.send(stage.prepared("t"))
    stage.appended[0][3](code)
    assert stage.loop.wait() == []
    assert stage.completed == []


def test_a_coordinator_that_lost_its_partition_stops(stage: Stage) -> None:
    stage.send(stage.prepared("t", "u"))
    stage.shard.active = False
    stage.appended[0][3](ErrorCode.NONE)
    stage.answer((9, "u", ErrorCode.NOT_ENOUGH_REPLICAS))
    assert stage.loop.wait() == []
    assert stage.completed == []


def test_an_answer_about_an_earlier_transaction_does_not_count(stage: Stage) -> None:
    """The object of a transactional id lives on through its transactions."""
    transaction = stage.prepared("t")
    stage.send(transaction)
    transaction.unmarked = {("t", 0): None, ("u", 0): None}
    stage.appended[0][3](ErrorCode.NONE)
    assert list(transaction.unmarked) == [("t", 0), ("u", 0)]
    assert stage.completed == []
