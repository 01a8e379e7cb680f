"""Fetch fan-out: one librdkafka producer; 1, 5 or 20 librdkafka consumers each read everything while it is written.

MB/s is what all consumers received together; CPU seconds are per GB delivered, with the producer's share in it.
The consumers limit the rate here: they share what cores the broker leaves.
"""

from __future__ import annotations

from bench.brokers import Broker
from bench.harness import Bench
from bench.rows import of
from bench.table import Row

VALUE_SIZE = 1024


def measure(bench: Bench) -> list[Row]:
    rows = []
    for consumers in (1, 5, 20):
        figures = bench.alternate(lambda broker, consumers=consumers: _once(bench, broker, consumers))  # type: ignore[misc]
        for unit in ("MB/s", "CPU s/GB"):
            rows.append(
                Row("fan-out", f"{consumers} consumers", unit, of(figures, "kafka", unit), of(figures, "pylogd", unit))
            )
    return rows


def _once(bench: Bench, broker: Broker, consumers: int) -> dict[str, float]:
    total = int(bench.scale(150e6, 20e6) / (1 if consumers < 20 else 4))
    with bench.topic(broker) as topic:
        messages = total // VALUE_SIZE
        follow = {"topic": topic, "partitions": 1, "messages": messages}
        loads = [bench.load("librdkafka", "follow", broker, **follow) for _ in range(consumers)]
        produce = bench.load(
            "librdkafka", "produce", broker, topic=topic, partitions=1, value_size=VALUE_SIZE, bytes_total=total
        )
        done = bench.run(broker, [*loads, produce])
        seconds = max(result["seconds"] for result in done["results"])
        delivered = messages * VALUE_SIZE * consumers
        return {"MB/s": delivered / 1e6 / seconds, "CPU s/GB": done["cpu_seconds"] / delivered * 1e9}
