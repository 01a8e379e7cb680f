"""Three brokers, replication factor 3, acks=all: throughput, requests, latency, and what happens when one goes.

Each make runs alone, one after the other, on all cores. End to end is from sending a record to reading it from its
leader, which shows it only when both followers have it: the replication lag. The time without writes counts from
kill -9 of the leader to the first acknowledgement of a record sent after it; once the leader is also the active
controller. Raw: requests to the brokers that are left, until one of them takes it. librdkafka: a producer that retries
quickly, which asks for the new leader at its own pace. The time to rejoin counts from starting a stopped broker, while
1 GB has been written without it, to its return to every ISR. Controller failover counts from kill -9 of the active
controller's process, while the cluster has 10,000 partitions, to the answer of the next one to a CreateTopics.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.cluster import Cluster, cluster, until
from bench.harness import Bench
from bench.load import frames
from bench.load.raw import connect, read_frame
from bench.rows import of
from bench.table import Row

PARTITIONS = 6


def measure(bench: Bench) -> list[Row]:
    found: dict[str, dict[str, float]] = {}
    with bench.unpinned():
        for kind in bench.kinds:
            with cluster(kind, bench.directory / f"cluster-{kind}") as made:
                time.sleep(bench.scale(5, 1))
                found[kind] = {"idle MB": made.resident_mb()}
                for step in STEPS:
                    figures = step(bench, made)
                    bench.say(f"{made.label}: " + ", ".join(f"{name} {value:,.4g}" for name, value in figures.items()))
                    found[kind] |= figures
    return [
        _row(found, "produce, librdkafka, 1 KiB", "MB/s", at_least=2.0),
        _row(found, "produce, librdkafka, 1 KiB", "CPU s/GB", at_most=0.5),
        _row(found, "one-record requests, raw, 4 x 16 in flight", "requests/s", at_least=8.0),
        _row(found, "one-record requests, raw, 4 x 16 in flight", "CPU us/request"),
        _row(found, "synchronous, raw, p50", "ms", at_most=0.5),
        _row(found, "synchronous, raw, p99", "ms", at_most=0.5),
        _row(found, "end to end, raw, p50", "ms", at_most=0.5),
        _row(found, "end to end, raw, p99", "ms", at_most=0.5),
        _row(found, "1,000 groups committing", "commits/s", at_least=3.0),
        _row(found, "1,000 groups committing", "CPU us/commit", at_most=0.2),
        _row(found, "1,000 topics created", "s", at_most=1.0),
        _row(found, "rejoining with a backlog of 1 GB", "s", at_most=1.0),
        _row(found, "no write after kill -9 of a leader, raw", "s", at_most_absolute=1.0),
        _row(found, "no write after kill -9 of a leader, librdkafka", "s", at_most_absolute=1.0),
        _row(found, "no write after kill -9 of leader and controller, raw", "s", at_most_absolute=2.5),
        _row(found, "no write after kill -9 of leader and controller, librdkafka", "s", at_most_absolute=2.5),
        _row(found, "10,000 partitions created", "s", at_most=1.0),
        _row(found, "controller failover with 10,000 partitions", "s", at_most=1.0),
        Row("cluster", "idle", "MB", of(found, "kafka", "idle MB"), of(found, "pylogd", "idle MB"), at_most=0.1),
    ]


def _row(found: dict[str, dict[str, float]], name: str, unit: str, **bounds: Any) -> Row:
    key = f"{name} {unit}"
    return Row("cluster", name, unit, of(found, "kafka", key), of(found, "pylogd", key), **bounds)


def _bulk(bench: Bench, made: Cluster) -> dict[str, float]:
    made.create("bulk", PARTITIONS)
    total = int(bench.scale(300e6, 40e6))
    common = {"topic": "bulk", "partitions": PARTITIONS, "value_size": 1024, "bytes_total": total}
    warm = {**common, "bytes_total": total // 4}
    bench.run(made, [bench.load("librdkafka", "produce", made, **warm)])  # type: ignore[arg-type]
    done = bench.run(made, [bench.load("librdkafka", "produce", made, **common)])  # type: ignore[arg-type]
    wrote = done["results"][0]
    return {
        "produce, librdkafka, 1 KiB MB/s": wrote["bytes"] / 1e6 / wrote["seconds"],
        "produce, librdkafka, 1 KiB CPU s/GB": done["cpu_seconds"] / wrote["bytes"] * 1e9,
    }


def _requests(bench: Bench, made: Cluster) -> dict[str, float]:
    made.create("requests", 4)
    load = {
        "topic": "requests", "partitions": 4, "connections": 4, "in_flight": 16, "record_count": 1, "value_size": 100,
    }  # fmt: skip
    rate, cost_us = _sustained(bench, made, "raw", "produce", **load)
    return {
        "one-record requests, raw, 4 x 16 in flight requests/s": rate,
        "one-record requests, raw, 4 x 16 in flight CPU us/request": cost_us,
    }


def _sustained(bench: Bench, made: Cluster, kind: str, function: str, **load: Any) -> tuple[float, float]:
    """Requests per second and what each costs, of the second of two runs: the first is to warm up."""
    for seconds in (bench.scale(5, 1), bench.scale(5, 1)):
        done = bench.run(made, [bench.load(kind, function, made, seconds=seconds, **load)])  # type: ignore[arg-type]
    result = done["results"][0]
    return result["requests"] / result["seconds"], done["cpu_seconds"] / result["requests"] * 1e6


def _latency(bench: Bench, made: Cluster) -> dict[str, float]:
    made.create("latency", 1)
    count = int(bench.scale(3_000, 300))
    for _ in range(int(bench.scale(4, 1))):  # until the JVM has compiled what one request at a time needs
        load = bench.load("raw", "produce_latency", made, topic="latency", value_size=100, count=count)  # type: ignore[arg-type]
        result = bench.run(made, [load])["results"][0]  # type: ignore[arg-type]
        load = bench.load("raw", "end_to_end", made, topic="latency", value_size=100, count=count // 2)  # type: ignore[arg-type]
        seen = bench.run(made, [load])["results"][0]  # type: ignore[arg-type]
    return {
        "synchronous, raw, p50 ms": result["p50_ms"],
        "synchronous, raw, p99 ms": result["p99_ms"],
        "end to end, raw, p50 ms": seen["p50_ms"],
        "end to end, raw, p99 ms": seen["p99_ms"],
    }


def _commits(bench: Bench, made: Cluster) -> dict[str, float]:
    """One commit in flight on each of 99 connections, a third of them to each coordinator."""
    rate, cost_us = _sustained(bench, made, "groups", "commit", topic="latency", groups=1_000, connections=99)
    return {"1,000 groups committing commits/s": rate, "1,000 groups committing CPU us/commit": cost_us}


def _topics(bench: Bench, made: Cluster) -> dict[str, float]:
    """Until every one has its leader."""
    count = int(bench.scale(1_000, 50))
    names = [f"many-{n}" for n in range(count)]
    admin = made.admin()
    started = time.perf_counter()
    futures = admin.create_topics([NewTopic(name, 1, 3) for name in names], operation_timeout=120)
    for future in futures.values():
        future.result(180)

    def led() -> bool:
        known = admin.list_topics(timeout=60).topics
        return all(name in known and known[name].partitions[0].leader >= 0 for name in names)

    until(led)
    return {"1,000 topics created s": (time.perf_counter() - started) * 1_000 / count}


def _backlog(bench: Bench, made: Cluster) -> dict[str, float]:
    made.create("backlog", PARTITIONS)
    node = made.nodes[3]
    node.terminate()
    total = int(bench.scale(1e9, 50e6))
    load = {"topic": "backlog", "partitions": PARTITIONS, "value_size": 1024, "bytes_total": total}
    bench.run_apart([bench.load("librdkafka", "produce", made, **load)])  # type: ignore[arg-type]
    admin = made.admin()
    started = time.perf_counter()
    node.launch()
    until(lambda: made.in_sync(admin, "backlog") == PARTITIONS, 300)
    return {"rejoining with a backlog of 1 GB s": time.perf_counter() - started}


def _failover(bench: Bench, made: Cluster) -> dict[str, float]:
    active = made.active_controller()
    other = next(n for n in made.nodes if n != active)
    found: dict[str, float] = {}
    for what, topic, leader in (("a leader", "failover", other), ("leader and controller", "both", active)):
        raw, client = _time_without_writes(made, topic, leader)
        found |= {
            f"no write after kill -9 of {what}, raw s": raw,
            f"no write after kill -9 of {what}, librdkafka s": client,
        }
    return found


def _time_without_writes(made: Cluster, topic: str, leader: int) -> tuple[float, float]:
    """Seconds until a raw request is acknowledged, and until a record of a librdkafka producer is."""
    made.create(topic, 1, leader)
    acknowledged: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": made.bootstrap,
            "acks": "all",
            "linger.ms": 0,
            "retry.backoff.ms": 10,
            "retry.backoff.max.ms": 50,  # also how rarely it asks where the leader is now
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
            "topic.metadata.refresh.fast.interval.ms": 20,
            "message.timeout.ms": 60_000,
            "log_level": 0,
        }
    )

    def send() -> None:
        sent = time.perf_counter()
        producer.produce(topic, b"x", on_delivery=lambda error, _: None if error else acknowledged.append(sent))
        producer.poll(0.01)

    while len(acknowledged) < 50:
        send()
    survivors = [node.port for n, node in made.nodes.items() if n != leader]
    with ThreadPoolExecutor(1) as pool:
        made.nodes[leader].kill()
        killed = time.perf_counter()
        taken = pool.submit(_taken_at, survivors, topic)
        while not any(sent > killed for sent in acknowledged):
            send()
        without = time.perf_counter() - killed
        raw = taken.result() - killed
    producer.flush(60)
    made.restart(leader, topic)
    return raw, without


def _taken_at(ports: list[int], topic: str) -> float:
    """When one of the brokers acknowledged a write for the first time."""
    frame = frames.produce(topic, 0, frames.batch(1, 100, int(time.time() * 1e3)))
    with ExitStack() as stack:
        connections = [stack.enter_context(connect(port)) for port in ports]
        while True:
            for connection in connections:
                connection.sendall(frame)
                if frames.produce_error(read_frame(connection), topic) == 0:
                    return time.perf_counter()
            time.sleep(0.01)


def _many_partitions(bench: Bench, made: Cluster) -> dict[str, float]:
    """One replica each: what counts is the size of the controller's image."""
    topics, partitions = int(bench.scale(10, 2)), int(bench.scale(1_000, 50))
    admin = made.admin()
    started = time.perf_counter()
    for number in range(topics):
        name = f"wide-{number}"
        admin.create_topics([NewTopic(name, partitions, 1)], operation_timeout=120)[name].result(180)
        until(lambda name=name: led(admin, name, partitions))
    created = time.perf_counter() - started
    active = made.active_controller()
    survivors = ",".join(node.bootstrap for n, node in made.nodes.items() if n != active)
    made.nodes[active].kill()
    killed = time.perf_counter()
    attempt = 0

    def create() -> bool:
        nonlocal attempt
        attempt += 1
        name = f"after-{attempt}"
        # A new client each time: librdkafka waits for the broker that it once took for the controller, dead or not.
        client = AdminClient({"bootstrap.servers": survivors, "log_level": 0})
        try:
            client.create_topics([NewTopic(name, 1, 1)], request_timeout=2)[name].result(4)
        except (KafkaException, TimeoutError):
            return False
        return True

    until(create, 300)
    return {
        "10,000 partitions created s": created * 10_000 / (topics * partitions),
        "controller failover with 10,000 partitions s": time.perf_counter() - killed,
    }


def led(admin: AdminClient, topic: str, partitions: int) -> bool:
    known = admin.list_topics(topic, timeout=60).topics[topic].partitions
    return len(known) == partitions and all(part.leader >= 0 for part in known.values())


STEPS = (_bulk, _requests, _latency, _commits, _topics, _backlog, _failover, _many_partitions)
