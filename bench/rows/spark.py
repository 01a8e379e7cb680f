"""Spark's stock sink and source, batch: rows per second and the broker's CPU seconds per million rows.

One local Spark writes and reads both brokers in turn, 100 B values with keys over four partitions. It shares all cores
with the brokers, as a user's would on one machine; the first round is not counted, for Spark's JVM warms up in it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from pylogd.spark_connector import session

from bench.brokers import Broker
from bench.harness import Bench
from bench.rows import of
from bench.table import Row

PARTITIONS = 4


def measure(bench: Bench) -> list[Row]:
    count = int(bench.scale(1_000_000, 100_000))
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.sql.warehouse.dir": str(bench.directory / "warehouse"),
    }
    # Spark leaves a folder `artifacts` where it is started.
    with contextlib.chdir(bench.directory):
        spark = session("pylogd bench", master="local[2]", config=settings)
    spark.sparkContext.setLogLevel("ERROR")
    frame = spark.range(count).selectExpr("cast(id as string) as key", "rpad(cast(id as string), 100, 'x') as value")

    def once(broker: Broker) -> dict[str, float]:
        with bench.topic(broker, PARTITIONS) as topic:
            where = {"kafka.bootstrap.servers": broker.bootstrap}
            writer = frame.write.format("kafka").options(**where, topic=topic)
            source = spark.read.format("kafka").options(**where, subscribe=topic)
            write = _timed(broker, count, writer.save)
            read = _timed(broker, count, lambda: source.load().write.format("noop").mode("overwrite").save())
            found = source.load().count()
            if found != count:
                raise RuntimeError(f"{broker.label}: {count} rows were written and {found} are there")
            return {f"{name} {unit}": value for name, done in (("write", write), ("read", read))
                    for unit, value in done.items()}  # fmt: skip

    try:
        with bench.unpinned():
            for broker in bench.brokers().values():
                once(broker)
            figures = bench.alternate(once)
    finally:
        spark.stop()
    rows = []
    for what in ("write", "read"):
        for unit, bounds in (("rows/s", {"at_least": 1.0}), ("CPU s/M rows", {"at_most": 0.5})):
            name = f"{what} {unit}"
            values = of(figures, "kafka", name), of(figures, "pylogd", name)
            rows.append(Row("spark", f"{what}, stock {_SIDES[what]}, batch", unit, *values, **bounds))
    return rows


_SIDES = {"write": "sink", "read": "source"}


def _timed(broker: Broker, count: int, work: Callable[[], Any]) -> dict[str, float]:
    cpu, started = broker.cpu_seconds(), time.perf_counter()
    work()
    elapsed = time.perf_counter() - started
    return {"rows/s": count / elapsed, "CPU s/M rows": (broker.cpu_seconds() - cpu) / count * 1e6}
