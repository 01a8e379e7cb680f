"""Groups of the new consumer protocol (group.protocol=consumer) as applications use them, with librdkafka and the Java
client: join, leave, crash, hang, static members, patterns, and the move of a live group from the classic protocol."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from pylogd.protocol.messages import incremental_alter_configs as messages
from support.admin import Admin
from support.daemon import Daemon
from support.members import Member, Members, Source
from support.rawclient import Client
from support.scale import scaled
from support.target import TARGET, TARGETS
from support.wait import eventually

PARTITIONS = 6
NEW = {"group_protocol": "consumer"}
CLASSIC = {"session_timeout_ms": "3000", "partition_assignment_strategy": "range"}
# Short sessions: a crashed member is noticed within the patience of a test.
SETTINGS = {
    "group.min.session.timeout.ms": "500",
    "offsets.topic.num.partitions": "4",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.heartbeat.interval.ms": "250",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "200",
}
JAVA = pytest.param("java", marks=pytest.mark.jvm)


@pytest.fixture(scope="module")
def group_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    daemon = TARGETS[TARGET](tmp_path_factory.mktemp("groups"), SETTINGS)
    daemon.start()
    yield daemon
    daemon.stop()


@pytest.fixture
def members(group_broker: Daemon, topic_name: str) -> Iterator[Members]:
    Admin(group_broker.bootstrap).create(topic_name, partitions=PARTITIONS)
    made = Members(group_broker.bootstrap, f"group.{topic_name}", topic_name, PARTITIONS)
    yield made
    made.stop()


def described(members: Members) -> Any:
    admin = AdminClient({"bootstrap.servers": members.bootstrap, "log_level": 0})
    return admin.describe_consumer_groups([members.group])[members.group].result()


def configure(members: Members, session_timeout_ms: int) -> None:
    """Give the group a session time-out of its own."""
    config = messages.AlterableConfig("consumer.session.timeout.ms", value=str(session_timeout_ms))
    resource = messages.AlterConfigsResource(32, members.group, [config])
    with Client(int(members.bootstrap.rpartition(":")[2])) as client:
        answer = client.ask(messages.IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert answer.responses[0].error_code == 0


@pytest.mark.parametrize("library", ["confluent-kafka", JAVA])
def test_life_of_a_group(members: Members, library: str) -> None:
    source = Source(members)
    source.produce(50)
    first = members.start(library, **NEW)
    members.wait_shared(first)
    source.wait_read()
    second = members.start(library, **NEW)
    members.wait_shared(first, second)
    assert (described(members).type.name, described(members).partition_assignor) == ("CONSUMER", "uniform")
    source.produce(50)
    source.wait_read()
    second.leave()
    members.wait_shared(first)
    third = members.start(library, **NEW)
    members.wait_shared(first, third)
    source.produce(50)
    third.kill()
    members.wait_shared(first)
    source.wait_read()
    if library != "java":  # VerifiableConsumer ends when a commit is refused, as that of a frozen member is
        fourth = members.start(library, **NEW)
        members.wait_shared(first, fourth)
        fourth.freeze()
        source.produce(50)
        members.wait_shared(first)
        source.wait_read()
        fourth.thaw()
        members.wait_shared(first, fourth)
        fourth.leave()
    first.leave()
    members.check_counts(source.per_partition)


@pytest.mark.parametrize("library", ["confluent-kafka", JAVA])
def test_a_static_member_comes_back_to_its_partitions(members: Members, library: str) -> None:
    configure(members, session_timeout_ms=20_000)
    source = Source(members)
    source.produce(20)
    first = members.start(library, group_instance_id="one", **NEW)
    second = members.start(library, group_instance_id="two", **NEW)
    members.wait_shared(first, second)
    source.wait_read()
    share = second.assignment
    changes = len(first.of("assigned"))
    second.leave()
    again = members.start(library, group_instance_id="two", **NEW)
    eventually(lambda: again.assignment == share)
    source.produce(20)
    source.wait_read()
    assert len([event for event in first.of("assigned")[changes:] if event["partitions"]]) == 0
    assert first.assignment | again.assignment == set(range(PARTITIONS))
    members.check_counts(source.per_partition)


def test_a_live_group_moves_to_the_new_protocol_and_back(members: Members) -> None:
    """A rolling restart, member by member, in both directions; nothing is skipped, nothing committed is read again."""
    source = Source(members)
    source.produce(30)
    started = [members.start(library, **CLASSIC) for library in ("kafka-python", "aiokafka", "confluent-kafka")]
    members.wait_shared(*started)
    source.wait_read()
    assert described(members).type.name == "CLASSIC"
    for options in (NEW, CLASSIC):
        for _ in range(3):
            source.produce(10)
            started.append(members.start("confluent-kafka", **options))
            members.wait_shared(*started)
            source.wait_read()
            started.pop(0).leave()
            members.wait_shared(*started)
            source.produce(10)
            source.wait_read()
        kind = "CONSUMER" if options is NEW else "CLASSIC"
        eventually(lambda kind=kind: described(members).type.name == kind)  # type: ignore[misc]
    for member in started:
        member.leave()
    members.check_counts(source.per_partition)


def test_members_of_both_protocols_through_random_changes(members: Members) -> None:
    chance = random.Random(848)
    source = Source(members)

    def join() -> None:
        new = chance.random() < 0.7
        library = "confluent-kafka" if new else chance.choice(["kafka-python", "aiokafka", "confluent-kafka"])
        started.append(members.start(library, **(NEW if new else CLASSIC)))
        if new:
            modern.add(started[-1])

    def may_freeze(member: Member) -> bool:
        """The last one of the new protocol would find a classic group when it wakes up, as with Kafka, and librdkafka
        gives up for good then."""
        others = [other for other in started if other is not member]
        return member not in modern or any(other in modern for other in others)

    started = [members.start("confluent-kafka", **NEW)]
    modern = set(started)
    members.wait_shared(*started)
    for _ in range(scaled(test=20, soak=200)):
        source.produce(10)
        what = chance.choice(["join", "join", "leave", "kill", "freeze"])
        if what == "join" or len(started) == 1:
            if len(started) < PARTITIONS:
                join()
        elif what == "leave":
            started.pop(chance.randrange(len(started))).leave()
        elif what == "kill":
            started.pop(chance.randrange(len(started))).kill()
        else:
            frozen = started[chance.randrange(len(started))]
            if may_freeze(frozen):
                frozen.freeze()
                members.wait_shared(*(member for member in started if member is not frozen))
                frozen.thaw()
        members.wait_shared(*started)
    source.wait_read()
    for member in started:
        member.leave()
    members.check_counts(source.per_partition)


def test_a_group_goes_on_after_its_broker_was_killed(new_broker: Callable[..., Daemon], topic_name: str) -> None:
    broker = new_broker({**SETTINGS, "group.consumer.session.timeout.ms": "10000"})
    Admin(broker.bootstrap).create(topic_name, partitions=PARTITIONS)
    members = Members(broker.bootstrap, f"group.{topic_name}", topic_name, PARTITIONS)
    try:
        source = Source(members)
        source.produce(100)
        first, second = members.start("confluent-kafka", **NEW), members.start("confluent-kafka", **NEW)
        members.wait_shared(first, second)
        source.wait_read()
        epoch = {member.member_id for member in described(members).members}
        broker.kill()
        broker.start()
        source.produce(100)
        source.wait_read()
        assert {member.member_id for member in described(members).members} == epoch
        members.check_counts(source.per_partition)
    finally:
        members.stop()


def test_topics_that_match_a_pattern_are_read(group_broker: Daemon, topic_name: str) -> None:
    admin = Admin(group_broker.bootstrap)
    admin.create(f"{topic_name}-one", partitions=2)
    admin.create(f"not-{topic_name}", partitions=2)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": group_broker.bootstrap,
            "group.id": f"pattern.{topic_name}",
            "group.protocol": "consumer",
            "log_level": 0,
        }
    )
    held: set[tuple[str, int]] = set()

    def has(*topics: str) -> bool:
        consumer.poll(0.1)
        return held == {(topic, index) for topic in topics for index in range(2)}

    consumer.subscribe(
        [f"^{topic_name}-.*"],
        on_assign=lambda _, given: held.update((each.topic, each.partition) for each in given),
        on_revoke=lambda _, gone: held.difference_update((each.topic, each.partition) for each in gone),
    )
    eventually(lambda: has(f"{topic_name}-one"))
    admin.create(f"{topic_name}-two", partitions=2)
    eventually(lambda: has(f"{topic_name}-one", f"{topic_name}-two"))
    consumer.close()
