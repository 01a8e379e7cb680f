"""Leadership, watermark and waiters of one partition, on a log that is only numbers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.replication.partition import Partition
from pylogd.replication.replicas import Replicas
from pylogd.replication.waiters import NEVER_S, Waiters


class Loop:
    """Callbacks wait until the test runs them: one turn."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

        self.timers: list[tuple[float, Any]] = []
        self.now_s = 100.0

    def time(self) -> float:
        return self.now_s

    def call_soon(self, call: Any, *args: Any) -> None:
        self.calls.append((call, args))

    def call_at(self, when_s: float, call: Any) -> Any:
        timer = (when_s, call)
        self.timers.append(timer)
        return SimpleNamespace(cancel=lambda: self.timers.remove(timer))

    def pass_time(self, now_s: float) -> None:
        """Run the timers that are due by then, each at its time."""
        while due := [timer for timer in self.timers if timer[0] <= now_s]:
            timer = min(due, key=lambda timer: timer[0])
            self.timers.remove(timer)
            self.now_s = timer[0]
            timer[1]()
        self.now_s = now_s

    def turn(self) -> int:
        calls, self.calls = self.calls, []
        for call, args in calls:
            call(*args)
        return len(calls)


class Log:
    def __init__(self) -> None:
        self.config = SimpleNamespace(flush_messages=1 << 62, min_insync_replicas=1)
        self.log_start_offset = self.log_end_offset = self.high_watermark = self.flushed_offset = 0
        self.assigned: list[tuple[int, int]] = []
        self.epochs = SimpleNamespace(assign=lambda epoch, offset: self.assigned.append((epoch, offset)))
        self.flush_listeners: list[Any] = []

    def append_as_leader(self, records: Any, epoch: int, *, now_ms: int, **options: Any) -> Any:
        self.log_end_offset += 1
        return SimpleNamespace(base_offset=self.log_end_offset - 1, last_offset=self.log_end_offset - 1)


class Ack:
    def __init__(self) -> None:
        self.codes: list[tuple[int, ErrorCode]] = []

    def acknowledged(self, slot: int, code: ErrorCode) -> None:
        self.codes.append((slot, code))


class Poll:
    def __init__(self) -> None:
        self.wakes = 0

    def woken(self) -> None:
        self.wakes += 1


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def partition(loop: Loop, log: Log) -> Partition:
    return Replicas(1, loop).add("t", 0, bytes(16), log)  # type: ignore[arg-type]


def append(partition: Partition, acks: int = 1) -> int:
    return partition.append(memoryview(b""), acks=acks, now_ms=0).base_offset


def test_a_replica_without_role_refuses(partition: Partition) -> None:
    with pytest.raises(KafkaError) as refusal:
        append(partition)
    assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_alone_the_watermark_is_the_log_end(partition: Partition, log: Log) -> None:
    partition.become_leader(4, (1,))
    assert log.assigned == [(4, 0)]
    append(partition)
    append(partition)
    assert partition.high_watermark == 2


def test_the_slowest_replica_in_sync_decides(partition: Partition) -> None:
    partition.become_leader(1, (1, 2, 3), (1, 2, 3))
    for _ in range(5):
        append(partition)
    assert partition.high_watermark == 0
    partition.follower_fetched(2, -1, 4, 0, 0)
    assert partition.high_watermark == 0
    partition.follower_fetched(3, -1, 2, 0, 0)
    assert partition.high_watermark == 2
    # The slow one leaves the ISR.
    partition.become_leader(1, (1, 2), (1, 2, 3), 1)
    assert partition.high_watermark == 4
    # And coming back behind the watermark does not move it back.
    partition.become_leader(1, (1, 2, 3), (1, 2, 3), 2)
    assert partition.high_watermark == 4


def test_a_client_that_goes_while_it_is_answered_takes_only_its_own_waiters_along(loop: Loop) -> None:
    """Sending one reply may show that the client has gone, which forgets its other waiters while they are settled."""
    waiters = Waiters(loop)  # type: ignore[arg-type]
    told: list[str] = []

    class Waiter:
        def __init__(self, name: str, goes: tuple[Waiter, ...] = ()) -> None:
            self.name = name
            self.goes = goes

        def acknowledged(self, slot: int, code: ErrorCode) -> None:
            told.append(self.name)
            for each in self.goes:
                waiters.abandon(each)

    gone = Waiter("gone")
    for offset, waiter in enumerate([Waiter("first", (gone,)), gone, Waiter("second"), Waiter("third")]):
        waiters.wait(waiters.acks, offset, NEVER_S, waiter, 0)
    waiters.settle(waiters.acks, 2, ErrorCode.NONE)
    assert told == ["first", "second"]
    waiters.settle(waiters.acks, 3, ErrorCode.NONE)
    assert told == ["first", "second", "third"]


def test_too_few_in_sync_stop_the_watermark(partition: Partition, log: Log) -> None:
    log.config.min_insync_replicas = 2
    partition.become_leader(1, (1,), (1, 2))
    append(partition)
    assert partition.high_watermark == 0
    with pytest.raises(KafkaError) as refusal:
        append(partition, acks=-1)
    assert refusal.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    partition.become_leader(1, (1, 2), (1, 2), 1)
    partition.follower_fetched(2, -1, 1, 0, 0)
    assert partition.high_watermark == 1


def test_min_isr_cannot_ask_for_more_than_there_are(partition: Partition, log: Log) -> None:
    log.config.min_insync_replicas = 3
    partition.become_leader(1, (1,), (1,))
    append(partition, acks=-1)
    assert partition.high_watermark == 1


def test_flushed_gates_the_watermark(partition: Partition, log: Log) -> None:
    log.config.flush_messages = 1
    partition.become_leader(1, (1,))
    waiting, durable = Ack(), Ack()
    append(partition)
    partition.when_committed(1, 1, NEVER_S, waiting)
    partition.when_flushed(1, 1, NEVER_S, durable)
    assert partition.high_watermark == 0
    log.flushed_offset = 1
    for listener in log.flush_listeners:
        listener(log)
    assert partition.high_watermark == 1
    assert waiting.codes == durable.codes == [(0, ErrorCode.NONE)]


def test_acknowledgements_come_in_order_of_offsets(partition: Partition) -> None:
    partition.become_leader(1, (1, 2), (1, 2))
    ack = Ack()
    for offset in (1, 2, 3, 5):
        partition.when_committed(offset, 1, NEVER_S, ack, offset)
    partition.when_committed(2, 1, NEVER_S, ack, 22)  # a duplicate of the second
    for _ in range(5):
        append(partition)
    partition.follower_fetched(2, -1, 2, 0, 0)
    assert [slot for slot, _ in ack.codes] == [1, 2, 22]
    partition.follower_fetched(2, -1, 5, 0, 0)
    assert [slot for slot, _ in ack.codes] == [1, 2, 22, 3, 5]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda p: p.become_leader(2, (1,)), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (lambda p: p.become_follower(2, 2, (2,)), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (lambda p: p.go_offline(), ErrorCode.KAFKA_STORAGE_ERROR),
        (lambda p: p.stop(), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_the_end_of_an_epoch_fails_its_waiters(partition: Partition, change: Any, code: ErrorCode) -> None:
    partition.become_leader(1, (1, 2), (1, 2))
    append(partition)
    ack, poll = Ack(), Poll()
    partition.when_committed(1, 1, NEVER_S, ack, 7)
    partition.waiters.fetches[poll] = None
    change(partition)
    assert ack.codes == [(7, code)]
    assert poll.wakes == 1


def test_who_waits_too_long_is_told_and_the_others_wait_on(partition: Partition, loop: Loop) -> None:
    partition.become_leader(1, (1, 2), (1, 2))
    for _ in range(4):
        append(partition)
    ack = Ack()
    for slot, deadline_s in enumerate((130.0, 110.0, NEVER_S, 110.0)):
        partition.when_committed(slot + 1, 1, deadline_s, ack, slot)
    assert [when_s for when_s, _ in loop.timers] == [110.0], "one timer for all, at the earliest deadline"
    loop.pass_time(110.0)
    assert ack.codes == [(1, ErrorCode.REQUEST_TIMED_OUT), (3, ErrorCode.REQUEST_TIMED_OUT)]
    assert [when_s for when_s, _ in loop.timers] == [130.0]
    ack.codes.clear()
    partition.follower_fetched(2, -1, 4, 0, 0)
    assert ack.codes == [(0, ErrorCode.NONE), (2, ErrorCode.NONE)]
    loop.pass_time(200.0)
    assert len(ack.codes) == 2
    assert not loop.timers


def test_deadlines_hold_for_every_kind_of_wait(partition: Partition, log: Log, loop: Loop) -> None:
    log.config.flush_messages = 1
    partition.become_leader(1, (1, 2), (1, 2))
    append(partition)
    ack = Ack()
    partition.when_committed(1, 1, 101.0, ack, 1)
    partition.when_flushed(1, 1, 101.0, ack, 2)
    partition.when_start_moved(1, 1, 101.0, ack, 3)
    loop.pass_time(101.0)
    assert ack.codes == [(slot, ErrorCode.REQUEST_TIMED_OUT) for slot in (1, 2, 3)]


def test_who_abandons_hears_nothing_even_while_others_are_told(partition: Partition, loop: Loop) -> None:
    partition.become_leader(1, (1, 2), (1, 2))
    append(partition)
    gone, told = Ack(), []

    class Leaves:
        def acknowledged(self, slot: int, code: ErrorCode) -> None:
            told.append(code)
            partition.abandon(gone)

    for deadline_s in (101.0, 102.0):
        partition.when_committed(1, 1, deadline_s, Leaves())
        partition.when_committed(1, 1, deadline_s, gone)
    loop.pass_time(101.0)
    partition.when_committed(1, 1, NEVER_S, gone)
    partition.become_follower(2, 2, (2,))
    assert told == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert gone.codes == []
    assert not loop.timers


def test_a_wait_that_is_over_already(partition: Partition, loop: Loop) -> None:
    partition.become_leader(3, (1,))
    append(partition)
    ack = Ack()
    partition.when_committed(1, 3, 101.0, ack, 1)
    partition.when_committed(1, 2, 101.0, ack, 2)
    partition.become_follower(4, 2, (2,))
    partition.when_committed(1, 4, 101.0, ack, 3)
    assert ack.codes == [
        (1, ErrorCode.NONE),
        (2, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (3, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ]
    assert not loop.timers


def test_old_news_is_ignored(partition: Partition) -> None:
    partition.become_leader(5, (1,), (1,), 3)
    partition.become_follower(4, 2, (2,))
    partition.become_leader(5, (1, 2), (1, 2), 2)
    assert partition.is_leader
    assert (partition.leader_epoch, partition.isr) == (5, (1,))


def test_polls_are_woken_once_per_turn(partition: Partition, loop: Loop) -> None:
    partition.become_leader(1, (1,))
    poll = Poll()
    partition.waiters.fetches[poll] = None
    for _ in range(10):
        append(partition)
    assert poll.wakes == 0
    assert loop.turn() == 1
    assert poll.wakes == 1
    append(partition)
    loop.turn()
    assert poll.wakes == 2


def test_what_follows_a_wake_comes_in_the_same_turn_and_fails_alone(partition: Partition, loop: Loop) -> None:
    partition.become_leader(1, (1,))
    replicas = partition._replicas
    done: list[str] = []

    def fails() -> None:
        raise RuntimeError

    for follow in (lambda: done.append("first"), fails, lambda: done.append("last")):
        poll = Poll()
        poll.woken = lambda follow=follow: replicas.after_wake(follow)  # type: ignore[method-assign]
        partition.waiters.fetches[poll] = None
    append(partition)
    with pytest.raises(RuntimeError):
        loop.turn()
    assert done == ["first"]
    loop.turn()
    assert done == ["first", "last"]
    replicas.after_wake(lambda: done.append("alone"))
    loop.turn()
    assert done[-1] == "alone"


def test_epochs_of_requests_are_compared(partition: Partition) -> None:
    partition.become_leader(5, (1,))
    partition.readable_log(5)
    partition.readable_log(-1)
    for epoch, code in ((4, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        with pytest.raises(KafkaError) as refusal:
            partition.readable_log(epoch)
        assert refusal.value.code is code
    partition.become_follower(6, 2, (2,))
    partition.readable_log(6, leader_only=False)
    with pytest.raises(KafkaError) as refusal:
        partition.readable_log(6)
    assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_listeners_hear_of_leadership(partition: Partition) -> None:
    heard: list[int | None] = []
    partition.listeners.append(lambda _, epoch: heard.append(epoch))
    partition.become_leader(1, (1,))
    partition.become_leader(1, (1, 2), (1, 2), 1)
    partition.become_leader(2, (1,), (1,), 2)
    partition.become_follower(3, 2, (2,))
    partition.become_follower(4, 3, (3,))
    assert heard == [1, 2, None]


def test_an_offline_replica_does_not_lead_again(partition: Partition) -> None:
    partition.become_leader(1, (1,))
    partition.go_offline()
    partition.become_leader(2, (1,))
    with pytest.raises(KafkaError) as refusal:
        append(partition)
    assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_lazy_log_is_led_when_it_is_opened(loop: Loop, log: Log) -> None:
    opened: list[int] = []

    def open_log() -> Log:
        opened.append(1)
        return log

    log.log_end_offset = 8
    partition = Replicas(1, loop).add("t", 0, bytes(16), open_log)  # type: ignore[arg-type]
    partition.become_leader(3, (1,))
    partition.become_leader(4, (1,), (1,), 1)
    assert not opened
    append(partition)
    assert (opened, log.assigned, partition.high_watermark) == ([1], [(4, 8)], 9)


def test_replicas_are_found_by_name_and_by_id(loop: Loop, log: Log) -> None:
    replicas = Replicas(1, loop)  # type: ignore[arg-type]
    old = replicas.add("t", 0, b"a" * 16, log)  # type: ignore[arg-type]
    assert replicas.get("t", 0) is replicas.get_by_id(b"a" * 16, 0) is old
    replicas.remove("t", 0)
    assert replicas.get("t", 0) is replicas.get_by_id(b"a" * 16, 0) is None
    assert len(replicas) == 0
