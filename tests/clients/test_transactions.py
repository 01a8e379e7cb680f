"""Transactions with the client libraries: what is committed is read, what is not is not, and zombies are fenced."""

from __future__ import annotations

import random
from collections.abc import Callable

import confluent_kafka
import pytest
from support.admin import Admin
from support.clients import Client
from support.daemon import Daemon
from support.scale import scaled
from support.transactional import PRODUCERS, Fenced, TransactionalProducer, committed_offset, read
from support.wait import eventually


@pytest.fixture(params=PRODUCERS, ids=lambda kind: kind.name)
def producing(request: pytest.FixtureRequest) -> type[TransactionalProducer]:
    return request.param  # type: ignore[no-any-return]


def test_committed_is_read_and_aborted_is_not(
    producing: type[TransactionalProducer], broker: Daemon, admin: Admin, topic_name: str
) -> None:
    admin.create(topic_name, partitions=2)
    everything: dict[int, list[bytes]] = {0: [], 1: []}
    committed: dict[int, list[bytes]] = {0: [], 1: []}
    chance = random.Random(4)
    with producing(broker.bootstrap, topic_name) as producer:
        for number in range(scaled(test=12, soak=300)):
            producer.begin()
            kept = number % 3 != 1
            for n in range(chance.randrange(1, 5)):
                partition = chance.randrange(2)
                value = f"{number}.{n}".encode()
                producer.send(topic_name, value, partition)
                everything[partition].append(value)
                if kept:
                    committed[partition].append(value)
            if kept:
                producer.commit()
            else:
                producer.abort()
    for partition in (0, 1):
        # The markers follow the answer to EndTxn.
        eventually(lambda p=partition: read(broker.bootstrap, topic_name, committed=True, partition=p) == committed[p])
        assert read(broker.bootstrap, topic_name, committed=False, partition=partition) == everything[partition]


def test_every_client_reads_only_what_is_committed(
    client: Client, broker: Daemon, admin: Admin, topic_name: str
) -> None:
    admin.create(topic_name)
    with PRODUCERS[2](broker.bootstrap, topic_name) as producer:
        for number in range(6):
            producer.begin()
            for n in range(3):
                producer.send(topic_name, f"{number}.{n}".encode())
            producer.commit() if number % 2 else producer.abort()
        producer.begin()
        producer.send(topic_name, b"open")
        wanted = [f"{number}.{n}".encode() for number in (1, 3, 5) for n in range(3)]
        setting = {"isolation.level" if client.name == "confluent-kafka" else "isolation_level": "read_committed"}
        found = client.consume(broker.bootstrap, topic_name, len(wanted), **setting)
        assert [message.value for message in found] == wanted
        producer.abort()


def test_an_open_transaction_holds_the_last_stable_offset(broker: Daemon, admin: Admin, topic_name: str) -> None:
    admin.create(topic_name)
    make = PRODUCERS[2]

    def ends() -> tuple[int, int]:
        consumers = [
            confluent_kafka.Consumer(
                {"bootstrap.servers": broker.bootstrap, "group.id": "g", "isolation.level": level, "log_level": 0}
            )
            for level in ("read_committed", "read_uncommitted")
        ]
        partition = confluent_kafka.TopicPartition(topic_name, 0)
        try:
            return tuple(consumer.get_watermark_offsets(partition, 30)[1] for consumer in consumers)  # type: ignore[return-value]
        finally:
            for consumer in consumers:
                consumer.close()

    with make(broker.bootstrap, topic_name + "a") as first, make(broker.bootstrap, topic_name + "b") as second:
        first.begin()
        assert first.send(topic_name, b"first") == 0
        second.begin()
        assert second.send(topic_name, b"second") == 1
        second.commit()
        eventually(lambda: ends() == (0, 3))
        assert read(broker.bootstrap, topic_name, committed=True) == []
        first.commit()
        eventually(lambda: ends() == (4, 4))
        assert read(broker.bootstrap, topic_name, committed=True) == [b"first", b"second"]


def test_a_zombie_is_fenced(
    producing: type[TransactionalProducer], broker: Daemon, admin: Admin, topic_name: str
) -> None:
    admin.create(topic_name)
    zombie = producing(broker.bootstrap, topic_name)
    zombie.begin()
    zombie.send(topic_name, b"zombie")
    with producing(broker.bootstrap, topic_name) as successor:
        with pytest.raises(Fenced):
            late(zombie, topic_name)
        successor.begin()
        successor.send(topic_name, b"successor")
        successor.commit()
        eventually(lambda: read(broker.bootstrap, topic_name, committed=True) == [b"successor"])
    zombie.close()


def late(producer: TransactionalProducer, topic: str) -> None:
    """Whether a library notices at the write or only at the commit is its own business."""
    producer.send(topic, b"too late")
    producer.commit()


def test_offsets_are_committed_with_the_transaction(
    producing: type[TransactionalProducer], broker: Daemon, admin: Admin, topic_name: str
) -> None:
    admin.create(topic_name)
    group = f"group-{topic_name}"
    with producing(broker.bootstrap, topic_name) as producer:
        for offset, kept in ((5, True), (9, False), (12, True)):
            before = committed_offset(broker.bootstrap, group, topic_name)
            producer.begin()
            producer.send(topic_name, b"x")
            producer.send_offsets(group, {(topic_name, 0): offset})
            if kept:
                producer.commit()
                eventually(lambda at=offset: committed_offset(broker.bootstrap, group, topic_name) == at)
            else:
                producer.abort()
                assert committed_offset(broker.bootstrap, group, topic_name) == before


def test_a_hanging_transaction_is_aborted(new_broker: Callable[..., Daemon], topic_name: str) -> None:
    broker = new_broker({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"})
    Admin(broker.bootstrap).create(topic_name)
    producer = PRODUCERS[2](broker.bootstrap, "hanging", 1000)
    producer.begin()
    producer.send(topic_name, b"hangs")
    # Another producer's record lies behind it until the time-out.
    with PRODUCERS[2](broker.bootstrap, "other") as other:
        other.begin()
        other.send(topic_name, b"other")
        other.commit()
    eventually(lambda: read(broker.bootstrap, topic_name, committed=True) == [b"other"])
    with pytest.raises((Fenced, confluent_kafka.KafkaException)):
        producer.commit()


def test_transactions_survive_a_killed_broker(new_broker: Callable[..., Daemon], topic_name: str) -> None:
    """Whatever was answered counts after kill -9: commits are there, aborts are not, what is open goes on."""
    broker = new_broker({"log.flush.interval.messages": "1"})
    Admin(broker.bootstrap).create(topic_name)
    committed: list[bytes] = []
    make = PRODUCERS[2]
    for number in range(3):
        with make(broker.bootstrap, "steady") as producer:
            for n in range(4):
                value = f"{number}.{n}".encode()
                producer.begin()
                producer.send(topic_name, value)
                if n % 2:
                    producer.commit()
                    committed.append(value)
                else:
                    producer.abort()
            producer.begin()
            producer.send(topic_name, b"open when killed")
            broker.kill()
            broker.start()
            if number % 2:
                producer.commit()
                committed.append(b"open when killed")
    with make(broker.bootstrap, "steady") as producer:
        eventually(lambda: read(broker.bootstrap, topic_name, committed=True) == committed)
