"""Long polls, many readers, many partitions, and brokers that go away and come back."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable

import aiokafka
import confluent_kafka
import kafka
from support.admin import Admin
from support.clients import Client, Confluent, Message
from support.daemon import Daemon
from support.scale import scaled

confluent = Confluent()


def test_long_poll_ends_when_a_record_arrives(client: Client, broker: Daemon, admin: Admin, topic_name: str) -> None:
    """The reader asks for a wait far longer than the test; the record, not the clock, must end it."""
    admin.create(topic_name)
    found: list[Message] = []
    name = "fetch.wait.max.ms" if client.name == "confluent-kafka" else "fetch_max_wait_ms"
    settings: dict[str, object] = {name: 50_000}
    if client.name == "confluent-kafka":
        settings["socket.timeout.ms"] = 60_000
    else:
        settings["request_timeout_ms"] = 60_000

    def read() -> None:
        found.extend(client.consume(broker.bootstrap, topic_name, 1, **settings))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    time.sleep(0.5)
    assert not found
    confluent.produce(broker.bootstrap, topic_name, [Message(b"wake up")])
    reader.join(20)
    assert [m.value for m in found] == [b"wake up"]


def test_fan_out(broker: Daemon, admin: Admin, topic_name: str) -> None:
    """Many readers follow one writer; each sees everything once, in order."""
    admin.create(topic_name)
    readers, total = scaled(test=20, soak=200), scaled(test=500, soak=20_000)

    async def read() -> list[int]:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=None)
        await consumer.start()
        try:
            tp = aiokafka.TopicPartition(topic_name, 0)
            consumer.assign([tp])
            consumer.seek(tp, 0)
            seen: list[int] = []
            while len(seen) < total:
                for records in (await consumer.getmany(tp, timeout_ms=1000)).values():
                    seen += [int(r.value) for r in records]
            return seen
        finally:
            await consumer.stop()

    async def write() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=1)
        await producer.start()
        try:
            for n in range(total):
                await producer.send(topic_name, str(n).encode(), partition=0)
            await producer.flush()
        finally:
            await producer.stop()

    async def run() -> list[list[int]]:
        reading = [asyncio.create_task(read()) for _ in range(readers)]
        await write()
        return await asyncio.wait_for(asyncio.gather(*reading), 120)

    for seen in asyncio.run(run()):
        assert seen == list(range(total))


def test_many_partitions_in_one_session(broker: Daemon, admin: Admin, topic_name: str) -> None:
    """One consumer over many partitions uses an incremental fetch session; nothing may be lost or doubled in it."""
    partitions, per_partition = 50, 20
    admin.create(topic_name, partitions=partitions)
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "by hand", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign([confluent_kafka.TopicPartition(topic_name, p, 0) for p in range(partitions)])
    for n in range(per_partition):
        confluent.produce(
            broker.bootstrap, topic_name, [Message(str(n).encode(), partition=p) for p in range(partitions)]
        )
    seen: dict[int, list[int]] = {p: [] for p in range(partitions)}
    deadline = time.monotonic() + 60
    while sum(map(len, seen.values())) < partitions * per_partition and time.monotonic() < deadline:
        for m in consumer.consume(1000, timeout=0.5):
            assert m.error() is None
            seen[m.partition()].append(int(m.value()))
    consumer.close()
    assert seen == {p: list(range(per_partition)) for p in range(partitions)}


def test_clients_reconnect_by_themselves(new_broker: Callable[..., Daemon], topic_name: str) -> None:
    """A clean restart on the same port: clients that stay open go on, and no acknowledged record is lost."""
    broker = new_broker()
    Admin(broker.bootstrap).create(topic_name)
    python = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all", retries=100)
    native = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    consumer = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=None)
    tp = kafka.TopicPartition(topic_name, 0)
    consumer.assign([tp])
    consumer.seek(tp, 0)
    for round_ in range(3):
        python.send(topic_name, f"python {round_}".encode(), partition=0)
        native.produce(topic_name, f"native {round_}".encode(), partition=0)
        python.flush(60)
        assert native.flush(60) == 0
        if round_ < 2:
            broker.restart()
    values: list[bytes] = []
    deadline = time.monotonic() + 60
    while len(values) < 6 and time.monotonic() < deadline:
        for records in consumer.poll(timeout_ms=500).values():
            values += [r.value for r in records]
    consumer.close()
    python.close()
    assert sorted(values) == sorted(f"{who} {n}".encode() for who in ("native", "python") for n in range(3))


def test_many_connections_come_and_go(broker: Daemon) -> None:
    """Connections that never speak, and ones that vanish, cost the others nothing."""
    before = broker.open_files()
    idle = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(scaled(test=200, soak=1000))]
    try:
        assert Admin(broker.bootstrap).topics() is not None
    finally:
        for sock in idle:
            sock.close()
    deadline = time.monotonic() + 30
    while broker.open_files() > before + 20:
        assert time.monotonic() < deadline, "descriptors of closed connections are kept"
        time.sleep(0.05)
