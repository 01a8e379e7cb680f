"""4,000 partitions on one broker: created, each written to once, idle, stopped and started again.

Writing to each makes both brokers really open them: pylogd opens a log when it is first used.
"""

from __future__ import annotations

import resource
import time

from bench.brokers import Broker
from bench.harness import Bench, admin_client, await_leaders, create_topic
from bench.table import Row

TOPICS = 4
UNITS = {
    "created": "s",
    "created, resident": "MB",
    "written to once": "s",
    "idle CPU": "ms per s",
    "resident": "MB",
    "stopped": "s",
    "restarted, all leaders known": "s",
    "restarted, idle CPU": "ms per s",
    "restarted, resident": "MB",
}


def measure(bench: Bench) -> list[Row]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # a JVM does not raise its own above the hard limit either
    per_topic = int(bench.scale(1_000, 50))
    found: dict[str, dict[str, float]] = {}
    for kind in bench.kinds:
        with bench.fresh(kind) as broker:
            found[kind] = _once(bench, broker, per_topic)
            bench.say(f"{broker.label}: {found[kind]}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return [
        Row(
            "partitions",
            f"{TOPICS * per_topic:,} {name}",
            unit,
            found.get("kafka", {}).get(name),
            found.get("pylogd", {}).get(name),
        )
        for name, unit in UNITS.items()
    ]


def _once(bench: Bench, broker: Broker, per_topic: int) -> dict[str, float]:
    names = [f"many{number}" for number in range(TOPICS)]
    figures: dict[str, float] = {}
    admin = admin_client(broker)
    started = time.perf_counter()
    for name in names:
        create_topic(admin, name, per_topic, {})
    figures["created"] = time.perf_counter() - started
    del admin
    figures["created, resident"] = broker.resident_mb()
    each = bench.load("raw", "produce_each", broker, topics=names, partitions=per_topic, value_size=100)
    figures["written to once"] = bench.run(broker, [each])["results"][0]["seconds"]
    figures["idle CPU"], figures["resident"] = _idle(bench, broker)
    figures["stopped"] = broker.timed_stop()
    started = time.perf_counter()
    broker.start()
    admin = admin_client(broker)
    for name in names:
        await_leaders(admin, name, per_topic)
    figures["restarted, all leaders known"] = time.perf_counter() - started
    del admin
    figures["restarted, idle CPU"], figures["restarted, resident"] = _idle(bench, broker)
    return figures


def _idle(bench: Bench, broker: Broker) -> tuple[float, float]:
    time.sleep(bench.scale(3, 1))
    seconds = bench.scale(5, 2)
    before = broker.cpu_seconds()
    time.sleep(seconds)
    return (broker.cpu_seconds() - before) / seconds * 1e3, broker.resident_mb()
