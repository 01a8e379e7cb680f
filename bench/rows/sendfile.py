"""Consuming from the page cache, beside a bare server that only calls sendfile on a file of the same size.

Two connections, replies of 1 MiB, the same reading client; the first column of figures is the bare loop.
"""

from __future__ import annotations

import os
import statistics

from bench import machine
from bench.brokers import Broker
from bench.harness import Bench
from bench.load import Load
from bench.table import Row

CONNECTIONS = 2
REPLY_BYTES = 1 << 20


def measure(bench: Bench) -> list[Row]:
    seconds = bench.scale(3, 1)
    file_bytes = int(bench.scale(128, 32)) << 20
    rates: dict[str, list[float]] = {"bare": []}
    costs: dict[str, list[float]] = {"bare": []}

    def once(broker: Broker) -> dict[str, float]:
        with bench.topic(broker, CONNECTIONS) as topic:
            common = {"topic": topic, "partitions": CONNECTIONS}
            fill = bench.load(
                "raw", "produce", broker, connections=CONNECTIONS, in_flight=2, record_count=1000, value_size=1024,
                seconds=120, bytes_max=file_bytes * CONNECTIONS, **common,
            )  # fmt: skip
            bench.run(broker, [fill])
            done = bench.run(
                broker, [bench.load("raw", "fetch", broker, fetch_bytes=REPLY_BYTES, seconds=seconds, **common)]
            )
        result = done["results"][0]
        return {
            "MB/s": result["bytes"] / 1e6 / result["seconds"],
            "CPU s/GB": done["cpu_seconds"] / result["bytes"] * 1e9,
        }

    for _ in range(bench.rounds):
        rate, cost = _bare(bench, file_bytes, seconds)
        rates["bare"].append(rate)
        costs["bare"].append(cost)
        bench.say(f"bare sendfile: {rate:,.0f} MB/s")
        for kind, figures in bench.alternate(once, rounds=1).items():
            rates.setdefault(kind, []).append(figures["MB/s"])
            costs.setdefault(kind, []).append(figures["CPU s/GB"])
    rate_of = {kind: statistics.median(values) for kind, values in rates.items()}
    cost_of = {kind: statistics.median(values) for kind, values in costs.items()}
    note = f"Kafka: {rate_of['kafka']:,.0f} MB/s" if "kafka" in rate_of else ""
    return [
        Row("sendfile", "consume from page cache", "MB/s", rate_of["bare"], rate_of.get("pylogd"), at_least=0.7,
            baseline="bare sendfile", note=note),
        Row("sendfile", "consume from page cache", "CPU s/GB", cost_of.get("kafka"), cost_of.get("pylogd"),
            note=f"bare sendfile: {cost_of['bare']:.3g}"),
    ]  # fmt: skip


def _bare(bench: Bench, file_bytes: int, seconds: float) -> tuple[float, float]:
    path = str(bench.directory / "bare.data")
    with open(path, "wb") as file:
        for _ in range(file_bytes >> 20):
            file.write(os.urandom(1 << 20))
    arguments = {"path": path, "reply_bytes": REPLY_BYTES}
    server = Load("bare", "sendfile_server", {**arguments, "seconds": seconds + 2}, machine.broker_cores())
    try:
        server.ready()
        server.go()
        client = Load(
            "bare", "sendfile_client", {**arguments, "connections": CONNECTIONS, "seconds": seconds}, bench.load_cores
        )
        try:
            client.ready()
            client.go()
            read = client.result()
        finally:
            client.kill()
        served = server.result()
    finally:
        server.kill()
        os.unlink(path)
        os.unlink(path + ".port")
    return read["bytes"] / 1e6 / read["seconds"], served["cpu_seconds"] / served["bytes"] * 1e9
