"""Resident memory: right after start, and after everything this run has put on the brokers so far.

Kafka runs with the heap of its own start script (1 GB reserved); what is counted is what is resident.
"""

from __future__ import annotations

import time

from bench.harness import Bench
from bench.table import Row


def measure(bench: Bench) -> list[Row]:
    idle: dict[str, float] = {}
    loaded = {kind: broker.resident_mb() for kind, broker in bench.brokers().items()}
    for kind in bench.kinds:
        with bench.fresh(kind) as broker:
            time.sleep(bench.scale(5, 1))  # what start-up still has to do belongs to it
            idle[kind] = broker.resident_mb()
    return [
        Row("memory", "idle", "MB", idle.get("kafka"), idle.get("pylogd"), at_most_absolute=60.0),
        Row("memory", "after the loads of this run", "MB", loaded.get("kafka"), loaded.get("pylogd")),
    ]
