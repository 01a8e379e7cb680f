"""Every step of a batch is cut short once: before each file it writes, moves or deletes, in the middle of what it sends
to a topic, and when all is done but Spark does not know it yet. Whatever happens, each record has its effect once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pylogd.spark_connector.pipelines import (
    Files,
    Ingest,
    Job,
    Materialise,
    PipelineError,
    Replay,
    Sink,
    Transform,
    Watermark,
    append_once,
    read_parquet,
    read_table,
    run,
    runner,
)
from pylogd.spark_connector.pipelines.folder import Folder
from pyspark.sql import DataFrameWriter
from support.orders import PARTITIONS, SCHEMA, Customers, Orders
from support.spark import Kafka, expected, summary

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

COUNT = 3000
BATCH = COUNT // 2
#: The first batch whose steps fail: one with a batch before it.
STRUCK = 1


class Crash(Exception):
    """In place of the end of the process."""


class Saboteur:
    """Cuts each step short the first time it is reached."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.struck: list[str] = []
        self._batch = -1
        self._steps: Counter[str] = Counter()
        for name in ("move", "delete"):
            self._before(monkeypatch, Folder, name)
        self._before(monkeypatch, DataFrameWriter, "parquet")
        write, send, step = Folder.write, append_once._send, runner._Run._step

        def cut_writing(this: Any, name: str, text: str) -> None:
            # The ledger's file is written before and after a table.
            self._strike(f"{name.rpartition('/')[2]}{' again' if self._steps['parquet'] else ''}")
            write(this, name, text)

        def cut_sending(job: Job, topic: str, rows: Any) -> None:
            if self._is_new("send"):
                # Some keys are complete, of the others nothing is there.
                send(job, topic, rows.where("crc32(coalesce(key, value)) % 3 = 0"))
                raise Crash
            send(job, topic, rows)

        def cut_step(this: Any, rows: Any, number: int) -> None:
            self._batch, self._steps = number, Counter()
            step(this, rows, number)
            self._strike("commit")

        monkeypatch.setattr(Folder, "write", cut_writing)
        monkeypatch.setattr(append_once, "_send", cut_sending)
        monkeypatch.setattr(runner._Run, "_step", cut_step)

    def _before(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        original = getattr(owner, name)

        def cut(*arguments: Any, **options: Any) -> Any:
            self._strike(name)
            return original(*arguments, **options)

        monkeypatch.setattr(owner, name, cut)

    def _is_new(self, step: str) -> bool:
        number = self._steps[step]
        self._steps[step] += 1
        # Of several files one has been moved and the others not.
        if self._batch < STRUCK or number != (step == "move") or step in self.struck:
            return False
        self.struck.append(step)
        return True

    def _strike(self, step: str) -> None:
        if self._is_new(step):
            raise Crash


@pytest.fixture
def run_through(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[Job], list[str]]:
    """Runs a job again until nothing fails any more; the steps that failed."""
    saboteur = Saboteur(monkeypatch)

    def through(job: Job) -> list[str]:
        while True:
            failed = len(saboteur.struck)
            saboteur._batch = -1
            try:
                run(job, spark, lambda _line: None)
            except PipelineError:
                assert len(saboteur.struck) == failed + 1, "it failed by itself"
            else:
                assert len(saboteur.struck) == failed
                return saboteur.struck

    return through


@pytest.fixture
def orders(one: Kafka, topic_name: str) -> Orders:
    """Orders in the topic `topic_name`, and a topic for the result."""
    one.create(topic_name, PARTITIONS, retention_ms=-1)
    one.create(f"{topic_name}.out", PARTITIONS)
    made = Orders(COUNT)
    one.produce(topic_name, made.messages())
    return made


def job(kafka: Kafka, folder: Path, *pipelines: Any) -> Job:
    return Job(bootstrap=kafka.bootstrap, checkpoints=str(folder / "checkpoints"), pipelines=list(pipelines))


Through = Callable[[Job], list[str]]


def test_ingest(spark: Any, one: Kafka, topic_name: str, tmp_path: Path, run_through: Through) -> None:
    """Into a compacted topic, and with rows that are alike."""
    one.create(topic_name, PARTITIONS, cleanup_policy="compact")
    files = tmp_path / "files"
    files.mkdir()
    lines = [f"{n % 100},{n % 300}" for n in range(COUNT)]
    for number in range(3):
        (files / f"{number}.csv").write_text("\n".join(lines[number::3]))
    source = Files(format="csv", path=str(files), schema="k INT, v INT", options={"maxFilesPerTrigger": "1"})
    ingest = Ingest(name="in", input=source, output=topic_name, key="k", value="v")
    assert run_through(job(one, tmp_path, ingest)) == ["batch.json", "send", "commit"]
    wanted = [(b"%d" % (n % 100), b"%d" % (n % 300)) for n in range(COUNT)]
    assert summary(one.read(spark, topic_name)) == expected(wanted)


def test_transform(
    spark: Any, one: Kafka, topic_name: str, tmp_path: Path, orders: Orders, run_through: Through
) -> None:
    """An aggregation: what it gave is kept, so that it cannot come out otherwise the second time."""
    totals = Transform(
        name="totals",
        input=topic_name,
        output=f"{topic_name}.out",
        schema=SCHEMA,
        batch=COUNT // 3,  # Spark drops what is late by the watermark of the batch before
        watermark=Watermark(column="at", delay="2 minutes"),
        sql="SELECT window.start AS at, item, count(*) AS n, sum(amount) AS sum, uuid() AS id FROM input "
        "GROUP BY window(at, '1 minute'), item",
        key="item",
        value="concat_ws(' ', unix_seconds(at), item, n, sum, id)",
    )
    steps = run_through(job(one, tmp_path, totals))
    assert steps == ["batch.json", "parquet", "rows.mark again", "send", "commit"]
    found = [bytes(row.value).decode().rpartition(" ")[0] for row in one.read(spark, f"{topic_name}.out").collect()]
    wanted = [
        f"{int(at.timestamp())} {item} {n} {amount}"
        for (at, item), (n, amount) in orders.totals(timedelta(minutes=2)).items()
    ]
    assert sorted(found) == sorted(wanted)


def test_sink(spark: Any, one: Kafka, topic_name: str, tmp_path: Path, orders: Orders, run_through: Through) -> None:
    lake = Sink(
        name="lake",
        input=topic_name,
        output=str(tmp_path / "lake"),
        schema=SCHEMA,
        partition_by=["item"],
        sql="SELECT id, CAST(item % 2 AS STRING) AS item FROM input",
        watermark=Watermark(column="at", delay="1 hour"),
        dead_letter=f"{topic_name}.out",
        batch=BATCH,
    )
    steps = run_through(job(one, tmp_path, lake))
    later = {"move", "delete", "batch.json again", "commit"}
    assert set(steps) == {"batch.json", "send", "parquet"} | later
    rows = read_parquet(spark, str(tmp_path / "lake")).collect()
    assert sorted((row.id, row.item) for row in rows) == [(n, str(n % 7 % 2)) for n in orders.good()]
    refused = [n for n in range(COUNT) if n not in set(orders.good())]
    wanted = expected((orders.key(n), orders.value(n)) for n in refused)
    assert summary(one.read(spark, f"{topic_name}.out")) == wanted
    # Nothing of the first attempts is left over.
    assert list((tmp_path / "lake" / "_staging").rglob("*.parquet")) == []


def test_materialise(spark: Any, one: Kafka, topic_name: str, tmp_path: Path, run_through: Through) -> None:
    customers = Customers(COUNT, 200)
    one.create(topic_name, PARTITIONS)
    one.produce(topic_name, customers.messages())
    # Three batches: the third deletes what the second replaced.
    table = Materialise(
        name="table", input=topic_name, output=str(tmp_path / "t"), schema="visits INT", batch=COUNT // 3, buckets=2
    )
    steps = run_through(job(one, tmp_path, table))
    assert steps == ["batch.json", "parquet", "_manifest.json again", "commit", "delete"]
    assert {row._key: row.visits for row in read_table(spark, str(tmp_path / "t")).collect()} == customers.latest()
    # What the last batch replaced stays for those who read it, and all that was replaced before is gone.
    assert len(list((tmp_path / "t" / "data").iterdir())) == 2


def test_replay(spark: Any, one: Kafka, topic_name: str, tmp_path: Path, orders: Orders, run_through: Through) -> None:
    again = Replay(name="again", input=topic_name, output=f"{topic_name}.out", batch=BATCH)
    assert run_through(job(one, tmp_path, again)) == ["batch.json", "send", "commit"]
    wanted = expected((orders.key(n), orders.value(n)) for n in range(COUNT))
    assert summary(one.read(spark, f"{topic_name}.out")) == wanted


def test_what_compaction_took_is_sent_again_with_what_follows_it(spark: Any) -> None:
    def frame(*pairs: tuple[str, str]) -> Any:
        return spark.createDataFrame([(*pair, None) for pair in pairs], "key STRING, value STRING, headers STRING")

    def left(written: Any, *, compacted: bool) -> list[tuple[str, str]]:
        rows = frame(("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"), ("a", "2"), ("b", "2")).coalesce(1)
        found = append_once.remaining(rows, written, compacted=compacted).collect()
        return [(row.key, row.value) for row in found]

    assert left(frame(("a", "1"), ("a", "2"), ("b", "1")), compacted=False) == [("c", "1"), ("a", "2"), ("b", "2")]
    # Of a, the 1 and the first 2 were compacted away; b is complete.
    there = frame(("a", "2"), ("b", "1"), ("b", "2"))
    assert left(there, compacted=True) == [("a", "1"), ("a", "2"), ("c", "1"), ("a", "2")]
