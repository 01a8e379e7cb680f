"""All five kinds of pipeline in one job, killed in the middle of each and run again: `pylogd spark run`, for real."""

from __future__ import annotations

import os
import signal
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pylogd.spark_connector.cache import OVERRIDE
from pylogd.spark_connector.pipelines import read_parquet, read_table
from support.clients import Message
from support.orders import PARTITIONS, SCHEMA, Customers, Orders
from support.paths import CACHE
from support.scale import scaled
from support.spark import Kafka, command, expected, summary
from support.wait import eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(scaled(test=1500, soak=7200))]

COUNT = scaled(test=50_000, soak=3_000_000)
KILLS = scaled(test=1, soak=4)
#: Records in a batch. What takes long for one has few of them.
MANY, FEW = COUNT // (4 * KILLS), COUNT // (10 * KILLS)
FILES = 12 * KILLS
DELAY = timedelta(minutes=5)
#: How many batches each pipeline needs at least.
PIPELINES = {"customers": 4 * KILLS, "lake": 4 * KILLS, "totals": 10 * KILLS, "orders": FILES, "again": 10 * KILLS}
RUN_S = scaled(test=600, soak=3600)

# Those that take longest for a batch come first, so that the first is not done before the last begins.
JOB = """\
bootstrap = "BOOTSTRAP"
checkpoints = "checkpoints"
together = true

[spark]
"spark.sql.shuffle.partitions" = 2
"spark.driver.memory" = "1g"

[topics."T.ingested"]
partitions = 4

[pipeline.customers]
kind = "materialise"
input = "T.customers"
output = "customers"
schema = "visits BIGINT"
buckets = 4
batch = MANY

[pipeline.lake]
kind = "sink"
input = "T.orders"
output = "lake"
schema = "SCHEMA"
sql = "SELECT *, date_format(at, 'HH:mm') > '10:20' AS evening FROM input"
partition_by = ["evening"]
watermark = { column = "at", delay = "1 hour" }
dead_letter = "T.dead"
batch = MANY

[pipeline.totals]
kind = "transform"
input = "T.orders"
output = "T.totals"
schema = "SCHEMA"
watermark = { column = "at", delay = "5 minutes" }
sql = '''
SELECT unix_seconds(window.start) AS start, item, count(*) AS orders, sum(amount) AS amount
FROM input GROUP BY window(at, '1 minute'), item'''
key = "item"
batch = FEW

[pipeline.orders]
kind = "ingest"
input = { format = "json", path = "files", schema = "id BIGINT, customer STRING", options = { maxFilesPerTrigger = 1 } }
output = "T.ingested"
key = "customer"

[pipeline.again]
kind = "replay"
input = "T.orders"
output = "T.again"
start = { START }
end = { END }
keep_partitions = true
batch = FEW
"""


class Running:
    """`pylogd spark run` in a process group of its own."""

    def __init__(self, folder: Path, number: int) -> None:
        self._log = folder / f"run-{number}.log"
        self._folder = folder
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                command("run", str(folder / "job.toml"), "--master", "local[2]"),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, OVERRIDE: str(CACHE)},
                cwd=folder,
                start_new_session=True,
            )

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *error: object) -> None:
        if self._alive():
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _alive(self) -> bool:
        """The process, or the JVM that it started."""
        self._process.poll()
        try:
            os.killpg(self._process.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def text(self) -> str:
        return self._log.read_text(errors="replace")

    def kill_when(self, pipelines: dict[str, int]) -> None:
        """Kills as soon as every pipeline has completed so many batches, or all. Spark's JVM is on its own then, and
        ends."""

        def reached() -> bool:
            assert self._process.poll() is None, self.text()
            return all(commits(self._folder, name) >= min(n, PIPELINES[name]) for name, n in pipelines.items())

        eventually(reached, timeout_s=RUN_S)
        os.kill(self._process.pid, signal.SIGKILL)
        eventually(lambda: not self._alive(), timeout_s=60, what="for the JVM to end")

    def finish(self) -> str:
        assert self._process.wait(RUN_S) == 0, self.text()
        return self.text()


def commits(folder: Path, pipeline: str) -> int:
    """How many batches a pipeline has completed."""
    found = folder / "checkpoints" / pipeline / "commits"
    return sum(path.name.isdigit() for path in found.iterdir()) if found.exists() else 0


def test_killed_and_resumed(spark: Any, one: Kafka, topic_name: str, tmp_path: Path) -> None:
    orders, customers = Orders(COUNT), Customers(COUNT)
    one.create(f"{topic_name}.customers", PARTITIONS, cleanup_policy="compact")
    one.create(f"{topic_name}.orders", PARTITIONS, retention_ms=-1)
    one.produce(f"{topic_name}.customers", customers.messages())
    one.produce(f"{topic_name}.orders", orders.messages())
    for topic in ("dead", "totals", "again"):
        one.create(f"{topic_name}.{topic}", PARTITIONS)
    numbers = orders.by_partition()
    begin = [17 * (number + 1) for number in range(PARTITIONS)]
    end = [len(each) - 29 * number for number, each in enumerate(numbers)]
    write_files(tmp_path / "files", orders)
    text = JOB.replace("BOOTSTRAP", one.bootstrap).replace("SCHEMA", SCHEMA)
    text = text.replace("MANY", str(MANY)).replace("FEW", str(FEW))
    text = text.replace("START", table(begin)).replace("END", table(end)).replace("T.", f"{topic_name}.")
    (tmp_path / "job.toml").write_text(text)

    for number in range(KILLS):
        before = {name: commits(tmp_path, name) for name in PIPELINES}
        with Running(tmp_path, number) as running:
            running.kill_when({name: count + 1 for name, count in before.items()})
        if number == 0:
            # None is done, so that each goes on from its middle.
            for name, batches in PIPELINES.items():
                assert commits(tmp_path, name) < batches, running.text()
    # Written after the replay began, so not of its range.
    one.produce(f"{topic_name}.orders", [Message(b"{}", partition=1)] * 3)
    with Running(tmp_path, 99) as running:
        said = running.finish()
    for name in PIPELINES:
        assert f"{name} (" in said
    assert said.count("; done") == 5
    check_tables(spark, tmp_path, orders, customers)
    check_topics(spark, one, topic_name, orders, begin, end)


def check_tables(spark: Any, folder: Path, orders: Orders, customers: Customers) -> None:
    lake = read_parquet(spark, str(folder / "lake"))
    lake = lake.selectExpr("encode(string(id), 'UTF-8') AS key", "encode(string(amount), 'UTF-8') AS value")
    assert summary(lake) == expected((b"%d" % n, b"%d" % (n * 37 % 1000)) for n in orders.good())
    assert sorted(path.name for path in (folder / "lake").glob("evening=*")) == ["evening=false", "evening=true"]
    found = {row._key: row.visits for row in read_table(spark, str(folder / "customers")).collect()}
    assert found == customers.latest()


def check_topics(spark: Any, one: Kafka, prefix: str, orders: Orders, begin: list[int], end: list[int]) -> None:
    assert reasons(one.read(spark, f"{prefix}.dead", includeHeaders="true")) == known_reasons(orders, 3)
    totals = one.read(spark, f"{prefix}.totals").selectExpr(
        "from_json(cast(value AS string), 'start BIGINT, item INT, orders BIGINT, amount BIGINT') AS t"
    )
    rows = [row.t for row in totals.collect()]
    wanted = {(int(at.timestamp()), item): total for (at, item), total in orders.totals(DELAY).items()}
    assert len(rows) == len(wanted)
    assert {(row.start, row.item): (row.orders, row.amount) for row in rows} == wanted

    ingested = one.read(spark, f"{prefix}.ingested")
    assert summary(ingested) == expected((orders.key(n), small(orders, n)) for n in range(COUNT))
    again = one.read(spark, f"{prefix}.again", includeHeaders="true")
    replayed = [n for part, each in enumerate(orders.by_partition()) for n in each[begin[part] : end[part]]]
    assert summary(again) == expected((orders.key(n), orders.value(n)) for n in replayed)
    origin = "filter(headers, h -> h.key = 'pylogd.origin')[0].value"
    assert again.where(f"split(cast({origin} AS string), '/')[1] != partition").count() == 0


def write_files(folder: Path, orders: Orders) -> None:
    """About FILES files of lines."""
    folder.mkdir()
    size = COUNT // FILES + 1
    for first in range(0, COUNT, size):
        lines = (small(orders, n).decode() for n in range(first, min(first + size, COUNT)))
        (folder / f"{first:09}.json").write_text("\n".join(lines))


def small(orders: Orders, n: int) -> bytes:
    return b'{"id":%d,"customer":"%s"}' % (n, orders.key(n))


def table(offsets: list[int]) -> str:
    return ", ".join(f"{number} = {offset}" for number, offset in enumerate(offsets))


def reasons(dead: Any) -> dict[str, int]:
    """How many records were refused for what; of a reason its first words."""
    reason = "cast(filter(headers, h -> h.key = 'pylogd.error.reason')[0].value AS string)"
    rows = dead.selectExpr(f"split({reason}, ':')[0] AS reason").groupBy("reason").count().collect()
    return {row.reason: row["count"] for row in rows}


def known_reasons(orders: Orders, without_id: int) -> dict[str, int]:
    bad = [n % 1000 for n in range(COUNT) if orders.is_bad(n)]
    return {
        "the value is not JSON": bad.count(999),
        "column id is null or missing": bad.count(998) + without_id,
        "late": sum(orders.is_late(n) for n in range(COUNT)),
    }
