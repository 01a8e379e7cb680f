"""Durable produce: `flush.messages=1` with 64 producers that each wait for their acknowledgement, all on one partition.

Beside a server on the same disk that writes and fsyncs each request before it answers and does nothing else, under the
same load: a broker without group commit could at best be that. The notes tell what a bare loop of write and fsync
does, and what the load reaches with a server that does not touch the disk at all: the ceiling that CPU time sets.
"""

from __future__ import annotations

import statistics
from typing import Any

from bench.harness import Bench, Server, floor_server
from bench.load import Load, run_all
from bench.load.frames import batch
from bench.rows import of
from bench.table import Row

PRODUCERS = 64
VALUE_SIZE = 100


def measure(bench: Bench) -> list[Row]:
    seconds = bench.scale(3, 1)

    def once(server: Server) -> dict[str, float]:
        with bench.topic(server, 1, **{"flush.messages": "1"}) as topic:
            load: dict[str, Any] = {
                "topic": topic, "partitions": 1, "connections": PRODUCERS, "in_flight": 1, "record_count": 1,
                "value_size": VALUE_SIZE, "seconds": seconds,
            }  # fmt: skip
            done = bench.run(server, [bench.load("raw", "produce", server, **load)])["results"][0]
            return {"requests/s": done["requests"] / done["seconds"]}

    found: dict[str, list[float]] = {}
    bare: list[float] = []
    each: list[float] = []
    for _ in range(bench.rounds):
        bare.append(_bare(bench, seconds / 2))
        with floor_server(bench.directory, durable=str(bench.directory / "each.fsync")) as server:
            each.append(once(server)["requests/s"])
        bench.say(f"bare write and fsync: {bare[-1]:,.0f}/s, one fsync for each request: {each[-1]:,.0f}/s")
        for kind, figures in bench.alternate(once, rounds=1, floor=True).items():
            found.setdefault(kind, []).append(figures["requests/s"])
    figures = {kind: {"requests/s": statistics.median(values)} for kind, values in found.items()}
    kafka, pylogd, floor = (of(figures, kind, "requests/s") for kind in ("kafka", "pylogd", "floor"))
    label = f"flush.messages=1, {PRODUCERS} producers"
    note = f"bare write and fsync: {statistics.median(bare):,.0f}/s; without a disk: {floor:,.0f} requests/s"
    one_each = statistics.median(each)
    return [
        Row("flush", label, "requests/s", one_each, pylogd, at_least=10.0, baseline="one fsync each", note=note),
        Row("flush", label, "requests/s", kafka, pylogd, at_least=1.0),
    ]


def _bare(bench: Bench, seconds: float) -> float:
    path, size = str(bench.directory / "bare.fsync"), len(batch(1, VALUE_SIZE, 0))
    load = Load("bare", "write_and_fsync", {"path": path, "record_bytes": size, "seconds": seconds}, bench.load_cores)
    result = run_all([load])[0]
    return float(result["requests"] / result["seconds"])
