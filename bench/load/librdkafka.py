"""librdkafka load through confluent-kafka: what a real client sees.

Messages are handed over in lists (`produce_batch`, `consume`) and no callbacks are set where a count is enough, because
one Python call per message would measure Python.
"""

from __future__ import annotations

import json
import time
from collections.abc import Generator
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from bench.load.raw import percentiles

Result = dict[str, Any]
Work = Generator[None, None, Result]


def _producer(port: int, **settings: Any) -> Producer:
    return Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "log_level": 4,
            "queue.buffering.max.messages": 2_000_000,
            **settings,
        }
    )


def _delivered(producer: Producer) -> None:
    left = producer.flush(120)
    if left:
        raise RuntimeError(f"{left} messages were not delivered")


def produce(
    port: int, topic: str, partitions: int, value_size: int, bytes_total: int, settings: dict[str, Any] | None = None
) -> Work:
    """Produces a number of bytes in bulk, spread over the partitions in turn."""
    failed: list[str] = []
    counts = {"txmsgs": 0, "requests": 0}

    def on_stats(text: str) -> None:
        for broker in json.loads(text)["brokers"].values():
            if broker["nodeid"] >= 0:
                counts["requests"] = broker["req"].get("Produce", 0)

    producer = _producer(
        port,
        **{
            "queue.buffering.max.kbytes": 1 << 20,
            "statistics.interval.ms": 200,
            "stats_cb": on_stats,
            "error_cb": lambda error: failed.append(str(error)),
            **(settings or {}),
        },
    )
    producer.list_topics(topic, timeout=30)
    value = b"x" * value_size
    chunk = max(1, min(5_000, (1 << 20) // value_size))
    messages = [{"value": value} for _ in range(chunk)]
    for partition in range(partitions):
        producer.produce(topic, value, partition=partition)
    _delivered(producer)
    yield
    total = bytes_total // value_size
    started = time.perf_counter()
    queued = turn = 0
    while queued < total:
        batch = messages if total - queued >= chunk else messages[: total - queued]
        accepted = producer.produce_batch(topic, batch, partition=turn % partitions)
        if accepted < len(batch):  # the queue is full: wait for room
            for message in batch:
                message.pop("_error", None)
            producer.poll(0.01)
        queued += accepted
        turn += 1
        producer.poll(0)
        while len(producer) > 400_000 or len(producer) * value_size > (256 << 20):
            producer.poll(0.002)
    _delivered(producer)
    elapsed = time.perf_counter() - started
    producer.poll(0.3)
    if failed:
        raise RuntimeError(failed[0])
    return {"bytes": total * value_size, "messages": total, "seconds": elapsed, "requests": counts["requests"]}


def _consumer(port: int, topic: str, partitions: int, **settings: Any) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "log_level": 4,
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            # A client whose queue is full otherwise stands still for a second, which punishes the faster broker.
            "fetch.queue.backoff.ms": 2,
            **settings,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    return consumer


def _check(message: Message) -> None:
    error = message.error()
    if error is not None and error.code() not in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
        raise RuntimeError(str(error))


def _await_first(consumer: Consumer) -> None:
    """librdkafka may take a second to connect; a consumer is ready when it has received something."""
    message = consumer.poll(60)
    if message is None:
        raise RuntimeError("nothing to consume")
    _check(message)


def consume(port: int, topic: str, partitions: int, messages: int) -> Work:
    """Consumes a known number of messages from the beginning."""
    consumer = _consumer(
        port,
        topic,
        partitions,
        **{"queued.min.messages": 1_000_000, "queued.max.messages.kbytes": 262_144, "fetch.message.max.bytes": 8 << 20},
    )
    _await_first(consumer)
    consumer.unassign()
    yield
    started = time.perf_counter()
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    received = 0
    moved = 0
    while received < messages:
        got = consumer.consume(min(10_000, messages - received), 10)
        if not got:
            raise RuntimeError(f"only {received} of {messages} messages came")
        _check(got[0])
        received += len(got)
        moved += len(got[0].value() or b"") * len(got)
    return {"messages": received, "bytes": moved, "seconds": time.perf_counter() - started}


def produce_latency(port: int, topic: str, value_size: int, count: int) -> Work:
    """One message at a time: the next is produced when the last is acknowledged."""
    producer = _producer(port, **{"linger.ms": 0, "socket.nagle.disable": True})
    value = b"x" * value_size
    for _ in range(200):
        producer.produce(topic, value, partition=0)
        _delivered(producer)
    yield
    samples = []
    for _ in range(count):
        started = time.perf_counter()
        producer.produce(topic, value, partition=0)
        if producer.flush(30):
            raise RuntimeError("a message was not delivered")
        samples.append(time.perf_counter() - started)
    return percentiles(samples)


def produce_stamped(port: int, topic: str, value_size: int, count: int, per_second: float) -> Work:
    """Produces at a steady rate; each value starts with the moment it was produced (CLOCK_MONOTONIC, one machine)."""
    producer = _producer(port, **{"linger.ms": 0, "socket.nagle.disable": True})
    filler = b"x" * (value_size - 8)
    producer.produce(topic, bytes(8) + filler, partition=0)
    _delivered(producer)
    yield
    started = time.perf_counter()
    for index in range(count):
        due = started + index / per_second
        while (left := due - time.perf_counter()) > 0:
            producer.poll(min(left, 0.001)) if left > 0.0005 else time.sleep(left)
        producer.produce(topic, time.monotonic_ns().to_bytes(8, "big") + filler, partition=0)
    _delivered(producer)
    return {"messages": count, "seconds": time.perf_counter() - started}


def consume_stamped(port: int, topic: str, count: int, skip: int) -> Work:
    """Measures how old each message is when it reaches the application."""
    consumer = _consumer(port, topic, 1)
    _await_first(consumer)
    yield
    samples: list[float] = []
    received = 0
    while received < count:
        message = consumer.poll(20)
        if message is None:
            raise RuntimeError(f"only {received} of {count} messages came")
        _check(message)
        now = time.monotonic_ns()
        value = message.value()
        if message.error() is None and value is not None:
            received += 1
            if received > skip:
                samples.append((now - int.from_bytes(value[:8], "big")) / 1e9)
    return percentiles(samples)


def follow(port: int, topic: str, partitions: int, messages: int) -> Work:
    """Consumes messages while they are being produced, after the one that the producer sends to set up."""
    consumer = _consumer(
        port, topic, partitions, **{"queued.min.messages": 100_000, "fetch.message.max.bytes": 4 << 20}
    )
    _await_first(consumer)
    yield
    started = time.perf_counter()
    received = 0
    while received < messages:
        got = consumer.consume(min(10_000, messages - received), 20)
        if not got:
            raise RuntimeError(f"only {received} of {messages} messages came")
        _check(got[0])
        received += len(got)
    return {"messages": received, "seconds": time.perf_counter() - started}
