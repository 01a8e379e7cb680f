"""Latency with little load: one request at a time (synchronous), and producer to consumer (end to end).

With broker and load on different cores every request costs two wake-ups of a sleeping core, which no broker can avoid:
the note tells what a server takes that only echoes.
"""

from __future__ import annotations

import os

from bench import machine
from bench.brokers import Broker
from bench.harness import Bench
from bench.load import Load, frames, run_all
from bench.rows import of
from bench.table import Row


def measure(bench: Bench) -> list[Row]:
    rows = _synchronous(bench, "raw", "synchronous, raw")
    rows[0].note = _echo(bench)
    rows += _synchronous(bench, "librdkafka", "synchronous, librdkafka")
    rows += _synchronous(bench, "raw", "end to end, raw", "end_to_end", 2_000)
    rows += _end_to_end(bench, "end to end, librdkafka")
    with bench.unpinned():
        raw = _synchronous(bench, "raw", "synchronous, raw, not pinned")
        raw[0].note = _echo(bench)
        rows += raw
        rows += _synchronous(bench, "librdkafka", "synchronous, librdkafka, not pinned")
        rows += _end_to_end(bench, "end to end, librdkafka, not pinned")
    return rows


def _synchronous(
    bench: Bench, kind: str, label: str, function: str = "produce_latency", count: int = 5_000
) -> list[Row]:
    def once(broker: Broker) -> dict[str, float]:
        with bench.topic(broker) as topic:
            load = bench.load(kind, function, broker, topic=topic, value_size=100, count=int(bench.scale(count, 500)))
            return _figures(bench.run(broker, [load])["results"][0])

    return _rows(bench.alternate(once), label)


def _end_to_end(bench: Bench, label: str) -> list[Row]:
    count = int(bench.scale(4_000, 500))

    def once(broker: Broker) -> dict[str, float]:
        with bench.topic(broker) as topic:
            consumer = bench.load("librdkafka", "consume_stamped", broker, topic=topic, count=count, skip=count // 10)
            producer = bench.load(
                "librdkafka", "produce_stamped", broker, topic=topic, value_size=100, count=count, per_second=1_000
            )
            return _figures(bench.run(broker, [consumer, producer])["results"][0])

    return _rows(bench.alternate(once), label)


def _echo(bench: Bench) -> str:
    topic = "bench0000"
    path = str(bench.directory / "echo.port")
    sizes = {"request_bytes": len(frames.produce(topic, 0, frames.batch(1, 100, 0))),
             "reply_bytes": frames.produce_reply_size(topic)}  # fmt: skip
    cores = machine.broker_cores() if bench.pinned else machine.all_cores()
    server = Load("bare", "echo_server", {"path": path, **sizes}, cores)
    try:
        server.ready()
        server.go()
        count = int(bench.scale(5_000, 500))
        done = run_all([Load("bare", "echo_latency", {"path": path, "count": count, **sizes}, bench.load_cores)])[0]
        server.result()
    finally:
        server.kill()
        os.unlink(path)
    bench.say(f"bare echo: p50 {done['p50_ms']:.3f} ms, p99 {done['p99_ms']:.3f} ms")
    return f"a server that only echoes: p50 {done['p50_ms']:.3g} ms, p99 {done['p99_ms']:.3g} ms"


def _figures(result: dict[str, float]) -> dict[str, float]:
    return {"p50": result["p50_ms"], "p99": result["p99_ms"]}


def _rows(figures: dict[str, dict[str, float]], label: str) -> list[Row]:
    return [
        Row(
            "latency", f"{label}, {which}", "ms", of(figures, "kafka", which), of(figures, "pylogd", which), at_most=0.5
        )
        for which in ("p50", "p99")
    ]
