"""Consumer groups: offset commits of a thousand groups, and a group of five hundred members that rebalances.

Commits: 100 connections, one commit of one partition in flight on each, ten groups in turn; the note tells what the
same load reaches with a server that does next to nothing (`load/floor.py`). `cluster` has them replicated. Rebalance:
every member of a stable group joins again at once, on a connection of its own; from the first JoinGroup to the last
assignment.
"""

from __future__ import annotations

from bench.brokers import Broker
from bench.harness import Bench, Server
from bench.rows import of
from bench.table import Row

GROUPS = 1000
CONNECTIONS = 100


def measure(bench: Bench) -> list[Row]:
    return _commits(bench) + _rebalances(bench)


def _commits(bench: Bench) -> list[Row]:
    def once(broker: Server) -> dict[str, float]:
        with bench.topic(broker) as topic:
            load = bench.load(
                "groups", "commit", broker, topic=topic, groups=GROUPS, connections=CONNECTIONS,
                seconds=bench.scale(5, 2),
            )  # fmt: skip
            done = bench.run(broker, [load])
            result = done["results"][0]
            return {
                "commits/s": result["requests"] / result["seconds"],
                "us/commit": done["cpu_seconds"] / result["requests"] * 1e6,
            }

    figures = bench.alternate(once, floor=True)

    def row(unit: str, shown: str, **bounds: float) -> Row:
        found = of(figures, "kafka", unit), of(figures, "pylogd", unit)
        return Row("groups", "1,000 groups committing", shown, *found, **bounds)  # type: ignore[arg-type]

    rows = [row("commits/s", "commits/s", at_least=3.0), row("us/commit", "CPU us/commit", at_most=0.2)]
    floor = figures["floor"]
    rows[0].note = f"floor: {floor['commits/s']:,.0f} commits/s at {floor['us/commit']:.3g} us"
    return rows


def _rebalances(bench: Bench) -> list[Row]:
    members = int(bench.scale(500, 100))

    def once(broker: Broker) -> dict[str, float]:
        with bench.topic(broker) as topic:
            load = bench.load("groups", "rebalance", broker, topic=topic, members=members, rounds=5)
            done = bench.run(broker, [load])
            return {"ms": done["results"][0]["p50_ms"], "CPU ms": done["cpu_seconds"] * 1000 / 5}

    figures = bench.alternate(once)

    def row(unit: str, shown: str, **bounds: float) -> Row:
        found = of(figures, "kafka", unit), of(figures, "pylogd", unit)
        return Row("groups", f"rebalance of {members} members", shown, *found, **bounds)  # type: ignore[arg-type]

    return [row("ms", "ms", at_most=1.0), row("CPU ms", "CPU ms")]
