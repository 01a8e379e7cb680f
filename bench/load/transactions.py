"""Transactions through confluent-kafka: begin, one record to each partition, commit; and read_committed readers."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Producer

from bench.load.librdkafka import Work
from bench.load.raw import percentiles

_TIMEOUT_S = 60


def commit(port: int, topic: str, name: str, partitions: int, count: int, per_second: float = 0) -> Work:
    """`count` transactions, as fast as they go or `per_second` of them; how long each took from begin to commit."""
    settings: dict[str, Any] = {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "transactional.id": name,
        "linger.ms": 0,
        "socket.nagle.disable": True,
        "log_level": 4,
    }
    producer = Producer(settings)
    producer.init_transactions(_TIMEOUT_S)
    value = b"x" * 100

    def transact() -> float:
        began = time.perf_counter()
        producer.begin_transaction()
        for partition in range(partitions):
            producer.produce(topic, value, partition=partition)
        producer.commit_transaction(_TIMEOUT_S)
        return time.perf_counter() - began

    for _ in range(200):
        transact()
    yield
    samples = []
    started = time.perf_counter()
    for index in range(count):
        if per_second:
            pause = started + index / per_second - time.perf_counter()
            if pause > 0:
                time.sleep(pause)
        samples.append(transact())
    return {"transactions": count, "seconds": time.perf_counter() - started, **percentiles(samples)}
