"""Each kind of pipeline on small data with a known answer: what it can be told, and what it says when it fails."""

from __future__ import annotations

import dataclasses
import json
import re
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from pylogd.spark_connector.pipelines import (
    Files,
    Ingest,
    Job,
    Materialise,
    PipelineError,
    Replay,
    SettingError,
    Sink,
    Summary,
    Topic,
    Transform,
    read_parquet,
    read_table,
    run,
    runner,
)
from pylogd.spark_connector.spark_command import main
from support.clients import Message
from support.orders import PARTITIONS, SCHEMA, Orders
from support.spark import Kafka, expected, summary

pytestmark = pytest.mark.spark


@pytest.fixture
def go(spark: Any, one: Kafka, tmp_path: Path) -> Any:
    """Runs pipelines with the checkpoints of the test."""

    def go(*pipelines: Any, **settings: Any) -> list[Summary]:
        checkpoints = str(tmp_path / "checkpoints")
        job = Job(bootstrap=one.bootstrap, checkpoints=checkpoints, pipelines=list(pipelines), **settings)
        return run(job, spark, lambda _line: None)

    return go


def values(spark: Any, kafka: Kafka, topic: str) -> list[Any]:
    return sorted(json.loads(row.value) for row in kafka.read(spark, topic).collect())


def test_ingest_of_every_source(spark: Any, one: Kafka, topic_name: str, tmp_path: Path, go: Any) -> None:
    rows = spark.range(20).selectExpr("id", "concat('name ', id) AS name")
    for kind in ("parquet", "json", "csv"):
        rows.where(f"id % 3 = {('parquet', 'json', 'csv').index(kind)}").write.format(kind).save(str(tmp_path / kind))
    pipelines = [
        Ingest(
            name=kind,
            input=Files(format=kind, path=str(tmp_path / kind), schema=schema),
            output=topic_name,
            key="id",
            value="name",
        )
        for kind, schema in (("parquet", ""), ("json", "id INT, name STRING"), ("csv", "id INT, name STRING"))
    ]
    said = go(*pipelines, topics={topic_name: Topic(partitions=2)}, together=True)
    assert [str(each).partition(" in ")[0] for each in said] == [
        "parquet (ingest): 7 read, 7 written", "json (ingest): 7 read, 7 written", "csv (ingest): 6 read, 6 written"
    ]  # fmt: skip
    assert one.admin.partitions(topic_name) == 2
    wanted = expected((b"%d" % n, b"name %d" % n) for n in range(20))
    assert summary(one.read(spark, topic_name)) == wanted
    # Nothing new, nothing written; a new file, and only that.
    rows.where("id = 0").write.format("json").mode("append").save(str(tmp_path / "json"))
    assert [each.tally.written for each in go(*pipelines)] == [0, 1, 0]


def test_transform_filters_and_enriches(spark: Any, one: Kafka, topic_name: str, tmp_path: Path, go: Any) -> None:
    orders = Orders(2000)
    one.create(topic_name, PARTITIONS, retention_ms=-1)
    one.produce(topic_name, orders.messages())
    (tmp_path / "items.csv").write_text("".join(f"{n},item {n}\n" for n in range(6)))
    pipeline = Transform(
        name="rich",
        input=topic_name,
        output=f"{topic_name}.out",
        schema=SCHEMA,
        tables={"items": Files(format="csv", path=str(tmp_path / "items.csv"), schema="item INT, name STRING")},
        sql="SELECT id, name, _partition FROM records LEFT JOIN items USING (item) WHERE amount >= 500",
        key="id",
        value="concat_ws('/', name, _partition)",
    )
    [said] = go(pipeline)
    bad = sum(orders.is_bad(n) for n in range(orders.count))
    parts = {n: part for part, numbers in enumerate(orders.by_partition()) for n in numbers}
    wanted = []
    for n in range(orders.count):
        if not orders.is_bad(n) and n * 37 % 1000 >= 500:
            name = b"" if n % 7 == 6 else b"item %d/" % (n % 7)
            wanted.append((b"%d" % n, name + b"%d" % parts[n]))
    assert summary(one.read(spark, f"{topic_name}.out")) == expected(wanted)
    assert (said.tally.read, said.tally.written, said.tally.refused) == (orders.count, len(wanted), bad)


AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}],
}


def test_avro(spark: Any, one: Kafka, topic_name: str, tmp_path: Path, go: Any) -> None:
    """Transformed and put into a table; also behind the five bytes that a schema registry's clients put before."""
    from pyspark.sql.avro.functions import to_avro
    from pyspark.sql.functions import struct

    one.create(topic_name)
    rows = spark.range(100).selectExpr("id", "if(id % 2 = 0, NULL, concat('note ', id)) AS note")
    encoded = rows.select(to_avro(struct("id", "note"), json.dumps(AVRO)).alias("value"))
    one.write(encoded.selectExpr("concat(X'0000000001', value) AS value"), topic_name)
    one.produce(topic_name, [Message(b"\0\0\0\0\1\xff"), Message(None)])
    common: dict[str, Any] = {
        "input": topic_name,
        "format": "avro",
        "schema": json.dumps(AVRO),
        "payload": "substring(value, 6)",
    }
    odd = Transform(
        name="odd", output=f"{topic_name}.odd", sql="SELECT * FROM input WHERE note IS NOT NULL", key="id", **common
    )
    lake = Sink(name="lake", output=str(tmp_path / "lake"), dead_letter=f"{topic_name}.dead", **common)
    said = go(odd, lake)
    assert [(each.tally.written, each.tally.refused) for each in said] == [(50, 2), (100, 2)]
    wanted = [(b"%d" % n, b'{"id":%d,"note":"note %d"}' % (n, n)) for n in range(1, 100, 2)]
    assert summary(one.read(spark, f"{topic_name}.odd")) == expected(wanted)
    found = {row.id: row.note for row in read_parquet(spark, str(tmp_path / "lake")).collect()}
    assert found == {n: f"note {n}" if n % 2 else None for n in range(100)}


def test_sink_schema_evolves(spark: Any, one: Kafka, topic_name: str, tmp_path: Path, go: Any) -> None:
    lake = str(tmp_path / "lake")
    one.create(topic_name)

    def sink(schema: str, **more: Any) -> Sink:
        return Sink(name="lake", input=topic_name, output=lake, schema=schema, partition_by=["part"], **more)

    one.produce(topic_name, [Message(b'{"id": 1, "part": "a b/c"}'), Message(b'{"id": 2, "part": null}')])
    go(sink("id INT, part STRING"))
    one.produce(topic_name, [Message(b'{"id": 3, "part": "x", "name": "three"}')])
    go(sink("id INT, part STRING, name STRING"))
    # A column that is not asked for any more is null from then on.
    one.produce(topic_name, [Message(b'{"part": "x", "name": "four"}')])
    go(sink("part STRING, name STRING"))
    rows = read_parquet(spark, lake).collect()
    assert sorted((row.id or 0, row.part, row.name) for row in rows if row.part) == [
        (0, "x", "four"), (1, "a b/c", None), (3, "x", "three")
    ]  # fmt: skip
    assert [(row.id, row.name) for row in rows if row.part is None] == [(2, None)]
    with pytest.raises(SettingError, match=r"pipeline\.lake\.schema: column id is int in the table and string now"):
        go(sink("id STRING, part STRING"))


def test_refused_records_say_why_and_where_from(
    spark: Any, one: Kafka, topic_name: str, tmp_path: Path, go: Any
) -> None:
    one.create(topic_name, retention_ms=-1)
    one.produce(
        topic_name,
        [
            Message(b'{"id": 1}'),
            Message(b"{", b"k", (("h", b"1"), ("n", None)), timestamp=1_700_000_000_123),
            Message(b'{"id": "x"}'),
            Message(b"{}"),
            Message(None),
        ],
    )
    strict: dict[str, Any] = {"input": topic_name, "schema": "id INT NOT NULL"}
    lake = Sink(name="lake", output=str(tmp_path / "t"), dead_letter=f"{topic_name}.d", **strict)
    [said] = go(lake)
    assert (said.tally.read, said.tally.written, said.tally.refused) == (5, 1, 4)
    rows = one.read(spark, f"{topic_name}.d", includeHeaders="true").orderBy("offset").collect()
    headers = [{h.key: h.value and bytes(h.value).decode() for h in row.headers} for row in rows]
    assert [(each["pylogd.error.reason"], each["pylogd.origin"]) for each in headers] == [
        ("the value is not JSON", f"{topic_name}/0/1"),
        ("the value does not fit the schema", f"{topic_name}/0/2"),
        ("column id is null or missing", f"{topic_name}/0/3"),
        ("there is no value", f"{topic_name}/0/4"),
    ]
    assert (headers[0]["h"], headers[0]["n"], headers[0]["pylogd.origin.timestamp"]) == ("1", None, "1700000000123")
    assert (rows[0].key, rows[0].value) == (b"k", b"{")
    with pytest.raises(PipelineError, match=r"strict \(sink\): offset 1 of partition 0 of .*: the value is not JSON"):
        go(Sink(name="strict", output=str(tmp_path / "s"), **strict))


def test_materialise_is_incremental(spark: Any, one: Kafka, topic_name: str, tmp_path: Path, go: Any) -> None:
    """Run by run: only what is new is read, tombstones take keys out, partitions may be added, columns too."""
    table = str(tmp_path / "t")
    one.create(topic_name, cleanup_policy="compact")

    def materialise(schema: str = "v INT") -> tuple[dict[str, Any], int]:
        [said] = go(Materialise(name="t", input=topic_name, output=table, schema=schema, buckets=3))
        return {row._key: row.asDict().get("w", row.v) for row in read_table(spark, table).collect()}, said.tally.read

    def put(*pairs: tuple[str, int | None], partition: int = 0) -> None:
        messages = [
            Message(None if v is None else b'{"v": %d, "w": "w%d"}' % (v, v), key.encode(), partition=partition)
            for key, v in pairs
        ]
        one.produce(topic_name, messages)

    put(("a", 1), ("b", 1), ("a", 2), ("c", 1), ("d", None))
    assert materialise() == ({"a": 2, "b": 1, "c": 1}, 5)
    assert materialise() == ({"a": 2, "b": 1, "c": 1}, 0)
    put(("b", None), ("c", 5), ("e", 7), ("e", None))
    assert materialise() == ({"a": 2, "c": 5}, 4)
    one.admin.grow(topic_name, 2)
    put(("a", 9), ("b", 3), partition=1)
    assert materialise() == ({"a": 9, "b": 3, "c": 5}, 2)
    put(("c", 6))
    assert materialise("v INT, w STRING") == ({"a": None, "b": None, "c": "w6"}, 1)


def test_replay_by_time(spark: Any, one: Kafka, topic_name: str, go: Any) -> None:
    orders = Orders(1000)
    one.create(topic_name, PARTITIONS, retention_ms=-1)
    one.produce(topic_name, orders.messages())

    def moment(n: int) -> datetime:
        return datetime.fromtimestamp(orders.stamp(n) / 1000, UTC)

    def replayed(name: str, **settings: Any) -> Any:
        go(Replay(name=name, input=topic_name, output=f"{topic_name}.{name}", **settings))
        return summary(one.read(spark, f"{topic_name}.{name}"))

    def records(numbers: Any) -> Any:
        return expected((orders.key(n), orders.value(n)) for n in numbers)

    assert replayed("between", start=moment(200), end=moment(700)) == records(range(200, 700))
    future = datetime(2100, 1, 1, tzinfo=UTC)
    assert replayed("after", start=moment(990), end=future) == records(range(990, 1000))
    # Of a partition that is not named, all; and only what the condition says.
    first, *others = orders.by_partition()
    left = [*first[:5], *(n for each in others for n in each)]
    assert replayed("some", end={"0": 5}, where="cast(key AS string) > 'c5'") == records(
        n for n in left if orders.key(n) > b"c5"
    )


def test_a_stopped_job_goes_on(
    spark: Any, one: Kafka, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And shows how far it is: in lines while it runs, in its summary, and as a consumer group."""
    one.create(topic_name)
    one.create(f"{topic_name}.out")
    one.produce(topic_name, [Message(b"%d" % n) for n in range(1000)])
    copy = Transform(
        name="copy",
        input=topic_name,
        output=f"{topic_name}.out",
        format="text",
        value="value",
        group=topic_name,
        batch=20,
    )
    job = Job(bootstrap=one.bootstrap, checkpoints=str(tmp_path / "checkpoints"), pipelines=[copy])
    monkeypatch.setattr(runner, "_PROGRESS_S", 0.0)
    stop = threading.Event()
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        if line.startswith("copy: batch "):
            stop.set()

    [said] = run(job, spark, say, stop)
    assert re.fullmatch(r"copy: batch 0, 20 read \(\d+/s\), 20 written, up to 980 behind per partition", lines[1])
    assert str(said).endswith("; stopped; run again to go on")
    assert said.tally.read < 1000
    assert (said.bounded, said.finished) == (True, False)
    job = dataclasses.replace(job, pipelines=[dataclasses.replace(copy, batch=0)])
    [said] = run(job, spark, lambda _line: None)
    assert said.finished
    assert summary(one.read(spark, f"{topic_name}.out")) == expected((None, b"%d" % n) for n in range(1000))
    admin = one.admin
    [offsets] = admin.client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(topic_name)]).values()
    assert [(at.topic, at.offset) for at in offsets.result(30).topic_partitions] == [(topic_name, 1000)]


def test_what_a_failure_says(spark: Any, one: Kafka, topic_name: str, tmp_path: Path, go: Any) -> None:
    with pytest.raises(PipelineError, match=rf"there is no topic '{topic_name}'; write to it first, or declare"):
        go(Transform(name="t", input=topic_name, output="x", schema="a INT"))
    one.create(topic_name)

    def transform(**settings: Any) -> Any:
        return go(Transform(**({"name": "t", "input": topic_name, "output": "x", "schema": "a INT"} | settings)))

    for settings, error, message in [
        ({"sql": "SELECT nothing FROM input"}, SettingError, r"pipeline\.t\.sql: .*`nothing` cannot be resolved"),
        ({"schema": "a INTEGRAL"}, SettingError, r"pipeline\.t\.schema: "),
        ({"key": "b"}, SettingError, r"pipeline\.t\.key: .*`b` cannot be resolved"),
        ({"sql": "SELECT a, count(*) FROM input GROUP BY a"}, PipelineError, r"t \(transform\): .*watermark"),
        ({"start": {"7": 0}}, PipelineError, "has no partition 7"),
    ]:
        with pytest.raises(error, match=message):
            transform(**settings)
    with pytest.raises(PipelineError, match=r"brokers at nonsense: Invalid url in bootstrap\.servers"):
        run(Job(bootstrap="nonsense", checkpoints=str(tmp_path)), spark)


def test_exit_codes(
    spark: Any,
    one: Kafka,
    topic_name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of `pylogd spark run`, in the session of the tests, which is left as it is."""
    monkeypatch.setattr(type(spark), "stop", lambda _session: None)
    monkeypatch.setattr(type(spark.sparkContext), "setLogLevel", lambda _context, _level: None)
    one.create(topic_name)
    one.produce(topic_name, [Message(b"{}")] * 3)
    file = tmp_path / "job.toml"
    file.write_text(
        f'bootstrap = "{one.bootstrap}"\ncheckpoints = "c"\n'
        f'[pipeline.lake]\nkind = "sink"\ninput = "{topic_name}"\noutput = "lake"\nschema = "id INT NOT NULL"\n'
    )
    assert main(["run", str(file)]) == 1
    assert "pylogd: lake (sink): offset 0 of partition 0 of" in capsys.readouterr().err
    assert main(["run", str(file), "--set", "pipeline.lake.sql=SELECT x FROM input"]) == 2
    assert "pipeline.lake.sql: " in capsys.readouterr().err
    assert main(["run", str(file), "--set", "pipeline.lake.schema=id INT"]) == 0
    assert "lake (sink): 3 read, 3 written in 1 batches" in capsys.readouterr().out
