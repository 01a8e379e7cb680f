"""One-record requests: how many the broker answers per second, and what each costs it.

Raw: four connections with 16 (or 5) requests in flight each, one record of 100 B per request. librdkafka: batches of
one message, no lingering; it is the limit on a small machine, so its row shows the cost per request rather than the
broker's best rate: the note tells what the same load reaches with a server that does next to nothing
(`load/floor.py`).
"""

from __future__ import annotations

from bench.harness import Bench, Server
from bench.rows import of
from bench.table import Row

CONNECTIONS = 4


def measure(bench: Bench) -> list[Row]:
    rows = _raw(bench, "raw, 4 x 16 in flight", 16) + _raw(bench, "raw, 4 x 5 in flight", 5)
    rows += _librdkafka(bench)
    with bench.unpinned():
        rows += _raw(bench, "raw, 4 x 16 in flight, not pinned", 16)
    return rows


def _raw(bench: Bench, label: str, in_flight: int) -> list[Row]:
    def once(broker: Server) -> dict[str, float]:
        with bench.topic(broker, CONNECTIONS) as topic:
            done = bench.run(
                broker,
                [
                    bench.load(
                        "raw", "produce", broker, topic=topic, partitions=CONNECTIONS, connections=CONNECTIONS,
                        in_flight=in_flight, record_count=1, value_size=100, seconds=bench.scale(3, 1),
                    )
                ],
            )  # fmt: skip
            result = done["results"][0]
            return {
                "requests/s": result["requests"] / result["seconds"],
                "us/request": done["cpu_seconds"] / result["requests"] * 1e6,
            }

    return _rows(bench.alternate(once), label)


def _librdkafka(bench: Bench) -> list[Row]:
    clients = 2
    messages = int(bench.scale(50_000, 10_000))

    def once(broker: Server) -> dict[str, float]:
        with bench.topic(broker, CONNECTIONS) as topic:
            load = {
                "topic": topic, "partitions": CONNECTIONS, "value_size": 100, "bytes_total": messages * 100,
                "settings": {"batch.num.messages": 1, "linger.ms": 0, "max.in.flight": 64},
            }  # fmt: skip
            done = bench.run(broker, [bench.load("librdkafka", "produce", broker, **load) for _ in range(clients)])
            requests = sum(result["requests"] for result in done["results"])
            seconds = max(result["seconds"] for result in done["results"])
            return {"requests/s": requests / seconds, "us/request": done["cpu_seconds"] / requests * 1e6}

    return _rows(bench.alternate(once, floor=True), "librdkafka, batches of 1")


def _rows(figures: dict[str, dict[str, float]], label: str) -> list[Row]:
    def row(unit: str, shown: str, **bounds: float) -> Row:
        return Row("requests", label, shown, of(figures, "kafka", unit), of(figures, "pylogd", unit), **bounds)  # type: ignore[arg-type]

    rows = [row("requests/s", "requests/s", at_least=5.0), row("us/request", "CPU us/request", at_most=0.2)]
    if "floor" in figures:
        floor = figures["floor"]
        rows[0].note = f"floor: {floor['requests/s']:,.0f} requests/s at {floor['us/request']:.3g} us"
    return rows
