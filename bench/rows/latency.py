"""Latency with little load: one request at a time (synchronous), and producer to consumer (end to end).

Part of every figure is the client's own work and the wake-ups of sleeping cores, which no broker can avoid. What that
is, is measured in the same rounds with the same load against a server that does next to nothing (`load/floor.py`), and
the rows "above the floor" compare what the brokers add to it.
"""

from __future__ import annotations

from bench.harness import Bench, Server
from bench.rows import of
from bench.table import Row


def measure(bench: Bench) -> list[Row]:
    rows = _one_load(bench, "raw", "synchronous, raw")
    rows += _one_load(bench, "librdkafka", "synchronous, librdkafka")
    rows += _one_load(bench, "raw", "end to end, raw", "end_to_end", 2_000)
    rows += _end_to_end(bench, "end to end, librdkafka")
    with bench.unpinned():
        rows += _one_load(bench, "raw", "synchronous, raw, not pinned")
        rows += _one_load(bench, "librdkafka", "synchronous, librdkafka, not pinned")
        rows += _end_to_end(bench, "end to end, librdkafka, not pinned")
    return rows


def _one_load(bench: Bench, kind: str, label: str, function: str = "produce_latency", count: int = 4_000) -> list[Row]:
    def once(server: Server) -> dict[str, float]:
        with bench.topic(server) as topic:
            load = bench.load(kind, function, server, topic=topic, value_size=100, count=int(bench.scale(count, 500)))
            return _figures(bench.run(server, [load])["results"][0])

    return _rows(bench.alternate(once, floor=True), label)


def _end_to_end(bench: Bench, label: str) -> list[Row]:
    count = int(bench.scale(2_500, 500))

    def once(server: Server) -> dict[str, float]:
        with bench.topic(server) as topic:
            consumer = bench.load("librdkafka", "consume_stamped", server, topic=topic, count=count, skip=count // 10)
            producer = bench.load(
                "librdkafka", "produce_stamped", server, topic=topic, value_size=100, count=count, per_second=1_000
            )
            return _figures(bench.run(server, [consumer, producer])["results"][0])

    return _rows(bench.alternate(once, floor=True), label)


def _figures(result: dict[str, float]) -> dict[str, float]:
    return {"p50": result["p50_ms"], "p99": result["p99_ms"]}


def _rows(figures: dict[str, dict[str, float]], label: str) -> list[Row]:
    rows = []
    for which in ("p50", "p99"):
        kafka, pylogd = of(figures, "kafka", which), of(figures, "pylogd", which)
        floor = figures["floor"][which]
        rows.append(Row("latency", f"{label}, {which}", "ms", kafka, pylogd, at_most=0.5))
        if which == "p50":
            # A p99 is made of rare moments, which do not add up.
            rows[-1].note = f"floor: p50 {floor:.3g} ms, p99 {figures['floor']['p99']:.3g} ms"
            above = [None if value is None else max(value - floor, 0.0) for value in (kafka, pylogd)]
            rows.append(Row("latency", f"{label}, {which} above the floor", "ms", *above, at_most=0.5))
    return rows
