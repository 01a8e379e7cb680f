"""Durable produce: `flush.messages=1` with 64 producers that each wait for their acknowledgement, all on one partition.

Beside a bare loop on the same disk that writes and fsyncs once per request, as a broker without group commit does.
"""

from __future__ import annotations

import statistics

from bench.brokers import Broker
from bench.harness import Bench
from bench.load import Load, run_all
from bench.load.frames import batch
from bench.rows import of
from bench.table import Row

PRODUCERS = 64
VALUE_SIZE = 100


def measure(bench: Bench) -> list[Row]:
    seconds = bench.scale(5, 1)
    bare: list[float] = []

    def once(broker: Broker) -> dict[str, float]:
        with bench.topic(broker, 1, **{"flush.messages": "1"}) as topic:
            done = bench.run(
                broker,
                [
                    bench.load(
                        "raw", "produce", broker, topic=topic, partitions=1, connections=PRODUCERS, in_flight=1,
                        record_count=1, value_size=VALUE_SIZE, seconds=seconds,
                    )
                ],
            )["results"][0]  # fmt: skip
            return {"requests/s": done["requests"] / done["seconds"]}

    found: dict[str, list[float]] = {}
    for _ in range(bench.rounds):
        arguments = {
            "path": str(bench.directory / "bare.fsync"),
            "record_bytes": len(batch(1, VALUE_SIZE, 0)),
            "seconds": seconds / 2,
        }
        result = run_all([Load("bare", "write_and_fsync", arguments, bench.load_cores)])[0]
        bare.append(result["requests"] / result["seconds"])
        bench.say(f"bare write and fsync: {bare[-1]:,.0f}/s")
        for kind, figures in bench.alternate(once, rounds=1).items():
            found.setdefault(kind, []).append(figures["requests/s"])
    figures = {kind: {"requests/s": statistics.median(values)} for kind, values in found.items()}
    kafka, pylogd = of(figures, "kafka", "requests/s"), of(figures, "pylogd", "requests/s")
    label = f"flush.messages=1, {PRODUCERS} producers"
    return [
        Row("flush", label, "requests/s", statistics.median(bare), pylogd, at_least=10.0, baseline="one fsync each"),
        Row("flush", label, "requests/s", kafka, pylogd, at_least=1.0),
    ]
