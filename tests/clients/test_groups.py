"""Consumer groups as applications use them: members that join, leave, crash, hang and come back, with three client
libraries, also in one group."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator

import kafka
import pytest
from support.admin import Admin
from support.clients import CLIENTS, Message
from support.daemon import Daemon
from support.member import KAFKA_PYTHON_POLL_MS
from support.members import LIBRARIES, Members, Source
from support.scale import scaled
from support.target import TARGET, TARGETS
from support.wait import eventually

PARTITIONS = 4
ASSIGNORS = [
    ("kafka-python", "range"),
    ("kafka-python", "roundrobin"),
    ("kafka-python", "sticky"),
    ("kafka-python", "cooperative-sticky"),
    ("aiokafka", "range"),
    ("aiokafka", "roundrobin"),
    ("aiokafka", "sticky"),
    ("confluent-kafka", "range"),
    ("confluent-kafka", "roundrobin"),
    ("confluent-kafka", "cooperative-sticky"),
]
SESSION_MS = 2000
# Short sessions: a crashed member is noticed within the patience of a test.
SETTINGS = {"group.min.session.timeout.ms": "500", "offsets.topic.num.partitions": "4"}


@pytest.fixture(scope="module")
def group_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    daemon = TARGETS[TARGET](tmp_path_factory.mktemp("groups"), SETTINGS)
    daemon.start()
    yield daemon
    daemon.stop()


@pytest.fixture
def members(group_broker: Daemon, topic_name: str) -> Iterator[Members]:
    """A topic with four partitions and a group to read it."""
    Admin(group_broker.bootstrap).create(topic_name, partitions=PARTITIONS)
    settings = {"session.timeout.ms": str(SESSION_MS), "max.poll.interval.ms": "5000"}
    made = Members(group_broker.bootstrap, f"group.{topic_name}", topic_name, PARTITIONS, settings)
    with contextlib.closing(_Stop(made)):
        yield made


class _Stop:
    def __init__(self, members: Members) -> None:
        self._members = members

    def close(self) -> None:
        self._members.stop()


@pytest.mark.parametrize("library", LIBRARIES)
def test_life_of_a_group(members: Members, library: str) -> None:
    """Join, leave, crash, hang, poll too slowly: each time the others take over, and nothing is lost or read twice."""
    source = Source(members)
    source.produce(50)
    first = members.start(library)
    members.wait_shared(first)
    source.wait_read()
    second = members.start(library)
    members.wait_shared(first, second)
    source.produce(50)
    source.wait_read()
    second.leave()
    members.wait_shared(first)
    third = members.start(library)
    members.wait_shared(first, third)
    source.produce(50)
    third.kill()
    members.wait_shared(first)
    source.wait_read()
    fourth = members.start(library)
    members.wait_shared(first, fourth)
    fourth.freeze()
    source.produce(50)
    members.wait_shared(first)
    source.wait_read()
    fourth.thaw()
    members.wait_shared(first, fourth)
    fourth.stall()
    eventually(lambda: len(first.assignment) == PARTITIONS, timeout_s=90)
    source.produce(50)
    source.wait_read()
    fourth.go_on()
    members.wait_shared(first, fourth)
    first.leave()
    fourth.leave()
    members.check_counts(source.per_partition)


@pytest.mark.parametrize(("library", "assignor"), ASSIGNORS, ids=lambda value: value)
def test_assignors(members: Members, library: str, assignor: str) -> None:
    source = Source(members)
    source.produce(20)
    started = []
    for _ in range(3):
        started.append(members.start(library, partition_assignment_strategy=assignor))
        members.wait_shared(*started)
    source.produce(20)
    source.wait_read()
    started.pop(0).leave()
    members.wait_shared(*started)
    source.produce(20)
    source.wait_read()
    for member in started:
        member.leave()
    members.check_counts(source.per_partition)


@pytest.mark.parametrize("library", ["kafka-python", "aiokafka", "confluent-kafka"])
def test_static_members_come_back_without_a_rebalance(members: Members, library: str) -> None:
    source = Source(members)
    source.produce(20)
    lasting = {"session_timeout_ms": "30000", "max_poll_interval_ms": "60000"}
    first = members.start(library, group_instance_id="one", **lasting)
    second = members.start(library, group_instance_id="two", **lasting)
    members.wait_shared(first, second)
    source.wait_read()
    share = second.assignment
    changes = len(first.of("assigned"))
    second.kill()
    again = members.start(library, group_instance_id="two", **lasting)
    eventually(lambda: again.assignment == share)
    source.produce(20)
    source.wait_read()
    assert len(first.of("assigned")) == changes
    assert first.assignment | again.assignment == set(range(PARTITIONS))
    members.check_counts(source.per_partition)


def test_three_libraries_in_one_group_through_random_changes(members: Members) -> None:
    """Members come, leave, crash and freeze at random; nothing is skipped, and nothing is read again that was
    committed."""
    chance = random.Random(7)
    source = Source(members)
    started = [members.start(chance.choice(LIBRARIES), partition_assignment_strategy="range")]
    members.wait_shared(*started)
    for _ in range(scaled(test=20, soak=200)):
        source.produce(10)
        what = chance.choice(["join", "join", "leave", "kill", "freeze"])
        if what == "join" or len(started) == 1:
            if len(started) < PARTITIONS:
                started.append(members.start(chance.choice(LIBRARIES), partition_assignment_strategy="range"))
        elif what == "leave":
            started.pop(chance.randrange(len(started))).leave()
        elif what == "kill":
            started.pop(chance.randrange(len(started))).kill()
        else:
            frozen = started[chance.randrange(len(started))]
            frozen.freeze()
            members.wait_shared(*(member for member in started if member is not frozen))
            frozen.thaw()
        members.wait_shared(*started)
    source.wait_read()
    for member in started:
        member.leave()
    members.check_counts(source.per_partition)


def test_commits_survive_a_crash_of_the_broker(new_broker: Callable[..., Daemon], topic_name: str) -> None:
    """kill -9 and a restart: every offset whose commit was acknowledged is there, and the group goes on."""
    broker = new_broker({**SETTINGS})
    Admin(broker.bootstrap).create(topic_name, partitions=PARTITIONS)
    settings = {"session.timeout.ms": "10000"}
    members = Members(broker.bootstrap, f"group.{topic_name}", topic_name, PARTITIONS, settings)
    with contextlib.closing(_Stop(members)):
        source = Source(members)
        source.produce(100)
        first, second = members.start("confluent-kafka"), members.start("kafka-python")
        members.wait_shared(first, second)
        source.wait_read()
        eventually(lambda: _committed(members) == dict.fromkeys(range(PARTITIONS), 100))
        broker.kill()
        broker.start()
        source.produce(100)
        source.wait_read()
        eventually(lambda: _committed(members) == dict.fromkeys(range(PARTITIONS), 200))
        members.check_counts(source.per_partition)


def _committed(members: Members) -> dict[int, int | None]:
    """The group's offsets as a client that is not a member sees them."""
    consumer = kafka.KafkaConsumer(bootstrap_servers=members.bootstrap, group_id=members.group)
    try:
        return {
            partition: consumer.committed(kafka.TopicPartition(members.topic, partition))
            for partition in range(members.partitions)
        }
    finally:
        consumer.close()


@pytest.mark.parametrize("library", LIBRARIES)
def test_auto_commit_and_resume(group_broker: Daemon, topic_name: str, library: str) -> None:
    """A consumer with nothing but defaults reads on where the last one stopped."""
    Admin(group_broker.bootstrap).create(topic_name)
    group = f"resume.{topic_name}"
    seen: list[int] = []
    for round_ in range(3):
        values = [Message(str(n).encode()) for n in range(round_ * 10, round_ * 10 + 10)]
        CLIENTS[0].produce(group_broker.bootstrap, topic_name, values)
        seen += _READERS[library](group_broker.bootstrap, topic_name, group, 10)
    assert seen == list(range(30))


def _read_kafka_python(bootstrap: str, topic: str, group: str, count: int) -> list[int]:
    consumer = kafka.KafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", max_poll_records=count
    )
    found: list[int] = []

    def enough() -> bool:
        for records in consumer.poll(KAFKA_PYTHON_POLL_MS).values():
            found.extend(int(record.value) for record in records)
        return len(found) >= count

    eventually(enough, timeout_s=60)
    consumer.close()
    return found


def _read_confluent(bootstrap: str, topic: str, group: str, count: int) -> list[int]:
    import confluent_kafka

    settings = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "log_level": 0}
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe([topic])
    found: list[int] = []

    def enough() -> bool:
        found.extend(int(record.value()) for record in consumer.consume(count, timeout=0.2) if not record.error())
        return len(found) >= count

    eventually(enough, timeout_s=60)
    consumer.close()
    return found


def _read_aiokafka(bootstrap: str, topic: str, group: str, count: int) -> list[int]:
    import asyncio

    import aiokafka

    async def run() -> list[int]:
        consumer = aiokafka.AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            return [int((await asyncio.wait_for(consumer.getone(), 60)).value) for _ in range(count)]
        finally:
            await consumer.stop()

    return asyncio.run(run())


_READERS = {"kafka-python": _read_kafka_python, "confluent-kafka": _read_confluent, "aiokafka": _read_aiokafka}
