"""Start-up: from spawning the process to the first answered request (ApiVersions), on a formatted data directory.

Both use all cores and a warm page cache. Kafka's formatting is a step of its own before it and is not counted; pylogd
formats within its first start, so it is started once before.
"""

from __future__ import annotations

import statistics

from bench.harness import Bench
from bench.table import Row


def measure(bench: Bench) -> list[Row]:
    found: dict[str, float] = {}
    for kind in bench.kinds:
        with bench.fresh(kind) as broker:
            samples = []
            for _ in range(bench.rounds + 2):
                broker.timed_stop()
                samples.append(broker.timed_start())
            found[kind] = statistics.median(samples)
            bench.say(f"{broker.label}: " + ", ".join(f"{sample:.3f} s" for sample in samples))
    return [Row("start-up", "to first answered request", "s", found.get("kafka"), found.get("pylogd"), at_most=0.1)]
