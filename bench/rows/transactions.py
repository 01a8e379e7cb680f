"""Transactions of four records to four partitions: a hundred per second, and as fast as one producer goes."""

from __future__ import annotations

from bench.brokers import Broker
from bench.harness import Bench
from bench.rows import of
from bench.table import Row

PARTITIONS = 4


def measure(bench: Bench) -> list[Row]:
    return _steady(bench) + _fast(bench)


def _once(bench: Bench, broker: Broker, count: int, per_second: float) -> dict[str, float]:
    with bench.topic(broker, partitions=PARTITIONS) as topic:
        load = bench.load(
            "transactions", "commit", broker, topic=topic, name=topic, partitions=PARTITIONS, count=count,
            per_second=per_second,
        )  # fmt: skip
        done = bench.run(broker, [load])
        result = done["results"][0]
        return {
            "transactions/s": result["transactions"] / result["seconds"],
            "p50": result["p50_ms"],
            "p99": result["p99_ms"],
            "us": done["cpu_seconds"] / result["transactions"] * 1e6,
        }


def _steady(bench: Bench) -> list[Row]:
    count = int(bench.scale(500, 200))
    figures = bench.alternate(lambda broker: _once(bench, broker, count, 100))

    def row(unit: str, shown: str, **bounds: float) -> Row:
        found = of(figures, "kafka", unit), of(figures, "pylogd", unit)
        return Row("transactions", "100 per second", shown, *found, **bounds)  # type: ignore[arg-type]

    return [
        row("p50", "p50 ms", at_most=1.0),
        row("p99", "p99 ms", at_most=1.0),
        row("us", "CPU us/transaction"),
    ]


def _fast(bench: Bench) -> list[Row]:
    count = int(bench.scale(1500, 300))
    figures = bench.alternate(lambda broker: _once(bench, broker, count, 0))

    def row(unit: str, shown: str, **bounds: float) -> Row:
        found = of(figures, "kafka", unit), of(figures, "pylogd", unit)
        return Row("transactions", "as fast as one producer goes", shown, *found, **bounds)  # type: ignore[arg-type]

    return [
        row("transactions/s", "transactions/s"),
        row("p50", "p50 ms", at_most=1.0),
        row("us", "CPU us/transaction"),
    ]
