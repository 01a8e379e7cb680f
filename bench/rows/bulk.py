"""Bulk produce and consume at 100 B and 1 KiB: MB/s and broker CPU seconds per GB.

Twice: with librdkafka, which is what a user sees but which is often itself the limit, and with prepared frames on raw
sockets (batches of about 16 KiB, Kafka's default), where the broker is the limit.
"""

from __future__ import annotations

from bench.brokers import Broker
from bench.harness import Bench
from bench.rows import of
from bench.table import Row

PARTITIONS = 4
BATCH_BYTES = 16_384


def measure(bench: Bench) -> list[Row]:
    rows: list[Row] = []
    for size, label in ((100, "100 B"), (1024, "1 KiB")):
        rows += _librdkafka(bench, size, label)
        rows += _raw(bench, size, label)
    with bench.unpinned():
        rows += _librdkafka(bench, 1024, "1 KiB, not pinned")
    return rows


def _librdkafka(bench: Bench, size: int, label: str) -> list[Row]:
    total = int(bench.scale(300e6, 60e6) * (0.5 if size == 100 else 1))

    def once(broker: Broker) -> dict[str, float]:
        with bench.topic(broker, PARTITIONS) as topic:
            common = {"topic": topic, "partitions": PARTITIONS}
            produced = bench.run(
                broker, [bench.load("librdkafka", "produce", broker, value_size=size, bytes_total=total, **common)]
            )
            wrote = produced["results"][0]
            consumed = bench.run(
                broker, [bench.load("librdkafka", "consume", broker, messages=wrote["messages"], **common)]
            )
            read = consumed["results"][0]
            return {
                "produce MB/s": wrote["bytes"] / 1e6 / wrote["seconds"],
                "produce CPU s/GB": produced["cpu_seconds"] / wrote["bytes"] * 1e9,
                "consume MB/s": read["bytes"] / 1e6 / read["seconds"],
                "consume CPU s/GB": consumed["cpu_seconds"] / read["bytes"] * 1e9,
            }

    return _rows(bench.alternate(once), f"librdkafka, {label}")


def _raw(bench: Bench, size: int, label: str) -> list[Row]:
    seconds = bench.scale(3, 1)

    def once(broker: Broker) -> dict[str, float]:
        with bench.topic(broker, PARTITIONS) as topic:
            common = {"topic": topic, "partitions": PARTITIONS}
            produced = bench.run(
                broker,
                [
                    bench.load(
                        "raw", "produce", broker, connections=PARTITIONS, in_flight=5, record_count=BATCH_BYTES // size,
                        value_size=size, seconds=seconds, bytes_max=int(1.5e9), **common,
                    )
                ],
            )  # fmt: skip
            wrote = produced["results"][0]
            consumed = bench.run(
                broker, [bench.load("raw", "fetch", broker, fetch_bytes=1 << 20, seconds=seconds / 2, **common)]
            )
            read = consumed["results"][0]
            return {
                "produce MB/s": wrote["bytes"] / 1e6 / wrote["seconds"],
                "produce CPU s/GB": produced["cpu_seconds"] / wrote["bytes"] * 1e9,
                "consume MB/s": read["bytes"] / 1e6 / read["seconds"],
                "consume CPU s/GB": consumed["cpu_seconds"] / read["bytes"] * 1e9,
            }

    return _rows(bench.alternate(once), f"raw frames, {label}")


def _rows(figures: dict[str, dict[str, float]], label: str) -> list[Row]:
    rows = []
    for what in ("produce", "consume"):
        for unit, bounds in (("MB/s", {"at_least": 1.0}), ("CPU s/GB", {"at_most": 0.45})):
            name = f"{what} {unit}"
            rows.append(
                Row("bulk", f"{what}, {label}", unit, of(figures, "kafka", name), of(figures, "pylogd", name), **bounds)
            )
    return rows
