"""A file that declares pipelines: what is read from it, and that every mistake is named with its place."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pylogd.spark_connector.pipelines import (
    Files,
    Ingest,
    LoadError,
    Replay,
    SettingError,
    Sink,
    Topic,
    Watermark,
    load,
)
from pylogd.spark_connector.spark_command import main

JOB = """\
checkpoints = "state"
trigger = "10 seconds"

[kafka]
"acks" = -1

[topics.orders]
partitions = 3
config = { "cleanup.policy" = "compact" }

[pipeline.orders]
kind = "ingest"
input = { format = "csv", path = "orders", options = { header = true } }
output = "orders"
key = "customer"

[pipeline.lake]
kind = "sink"
input = "orders"
output = "lake"
schema = "id BIGINT, at TIMESTAMP"
partition_by = ["day"]
watermark = { column = "at", delay = "1 hour" }
dead_letter = "orders.dead"

[pipeline.again]
kind = "replay"
input = "orders"
output = "orders.again"
start = 2026-01-01T00:00:00Z
end = { 0 = 10, 1 = 20 }
"""


def test_a_job(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    job = load(str(path))
    assert job.client_options() == {"kafka.bootstrap.servers": "127.0.0.1:9092", "kafka.acks": "-1"}
    assert job.topics == {"orders": Topic(partitions=3, config={"cleanup.policy": "compact"})}
    orders, lake, again = job.pipelines
    assert orders == Ingest(
        name="orders",
        input=Files(format="csv", path=f"{tmp_path}/orders", options={"header": "true"}),
        output="orders",
        key="customer",
    )
    assert isinstance(lake, Sink)
    assert (lake.output, lake.partition_by) == (f"{tmp_path}/lake", ["day"])
    assert lake.watermark == Watermark(column="at", delay="1 hour")
    assert isinstance(again, Replay)
    assert (again.start, again.end) == (datetime(2026, 1, 1, tzinfo=UTC), {"0": 10, "1": 20})
    assert job.checkpoint_of(lake) == f"{tmp_path}/state/lake"
    assert [job.trigger_of(each) for each in job.pipelines] == ["10 seconds", "10 seconds", "available-now"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('output = "lake"', 'outptu = "lake"', "job.toml:20: pipeline.lake.outptu: unknown; did you mean output?"),
        ('output = "lake"\n', "", "job.toml:17: pipeline.lake.output: missing; expected the folder of the table"),
        ('["day"]', '"day"', "job.toml:22: pipeline.lake.partition_by: expected a list of columns, not 'day'"),
        ('"1 hour" }', "1 }", "pipeline.lake.watermark.delay: expected how late a record may be, "),
        ('kind = "sink"', 'kind = "sinc"', "job.toml:18: pipeline.lake.kind: not 'sinc'; expected one of ingest, "),
        ('"10 seconds"', '"often"', 'job.toml:2: trigger: expected "available-now" or an interval such as'),
        ('"10 seconds"', "true", 'job.toml:2: trigger: expected "available-now" or an interval such as'),
        ("T00:00:00Z", "T00:00:00", "job.toml:30: pipeline.again.start: expected a time zone too"),
        ('"orders.again"', '"orders"', "job.toml:29: pipeline.again.output: expected another topic than the input"),
        ("partitions = 3", 'partitions = "3"', "job.toml:8: topics.orders.partitions: expected a number from 1 on"),
        ('schema = "id BIGINT, at TIMESTAMP"\n', "", "job.toml:17: pipeline.lake.schema: missing; expected columns"),
        ('checkpoints = "state"\n', "", "checkpoints: missing; expected the folder where"),
        ("[kafka]", "[kafka", "job.toml: not valid TOML: "),
    ],
)
def test_a_mistake_is_named(
    tmp_path: Path, old: str, new: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.toml"
    assert old in JOB
    path.write_text(JOB.replace(old, new))
    assert main(["run", str(path)]) == 2
    assert message in capsys.readouterr().err


def test_the_command_line_overrides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    job = load(str(path), ["bootstrap=other:1234", "pipeline.lake.batch=500", 'pipeline.lake.partition_by=["a", "b"]'])
    lake = job.pipelines[1]
    assert isinstance(lake, Sink)
    assert (job.bootstrap, lake.batch, lake.partition_by) == ("other:1234", 500, ["a", "b"])
    with pytest.raises(LoadError, match=r"pipeline\.lake\.batch: expected the most records in one step"):
        load(str(path), ["pipeline.lake.batch=many"])
    assert main(["run", str(path), "--check", "--only", "lake"]) == 0
    assert "1 pipelines: lake" in capsys.readouterr().out
    assert main(["run", str(path), "--only", "lakes"]) == 2
    assert "--only lakes: expected one of orders, lake, again" in capsys.readouterr().err
    assert main(["run", str(tmp_path / "none.toml")]) == 2


def test_python_is_checked_like_a_file() -> None:
    with pytest.raises(SettingError, match=r"lake\.batch: expected 0 or more, not -1"):
        Sink(name="lake", input="orders", output="lake", schema="id BIGINT", batch=-1)
