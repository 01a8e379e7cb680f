"""Topic to partitioned Parquet, each record once.

A batch is written to a hidden folder and its files are then moved into the table under names that begin with the mark
of the batch. A batch that was cut short first removes the files of its first attempt. So any reader of the folder, not
only Spark, finds each record once; while a batch is being moved, a reader may see a part of it.

`_schema.json` in the table's folder holds the columns of all files together.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pylogd.spark_connector.pipelines import frames
from pylogd.spark_connector.pipelines.columns import merge
from pylogd.spark_connector.pipelines.folder import Folder
from pylogd.spark_connector.pipelines.job_settings import Sink, Watermark
from pylogd.spark_connector.pipelines.ledger import Batch
from pylogd.spark_connector.pipelines.pipeline_context import Context, Plan
from pylogd.spark_connector.pipelines.refusal import refuse
from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_SCHEMA = "_schema.json"
_STAGING = "_staging"


def plan(context: Context, settings: Sink) -> Plan:
    """Each batch becomes files of the table; what cannot be used or is late is refused."""
    with context.blame("schema"):
        parsed = frames.parse(context.stream(settings), settings)
    with context.blame("sql"):
        columns = frames.query(frames.usable(parsed), settings.sql)
    with context.blame("partition_by"):
        columns.select(*settings.partition_by)
    if settings.watermark:
        with context.blame("watermark"):
            late(parsed, settings.watermark, 0)
    table = Folder(context.spark, settings.output)
    with context.blame("schema"):
        table.write(_SCHEMA, merge(_known(table) or columns.schema, columns.schema).json())

    def step(rows: DataFrame, number: int) -> None:
        batch = context.ledger.begin(number)
        marked = late(rows, settings.watermark, batch.event_time_ms).persist()
        try:
            refuse(context, settings, marked, batch)
            written = frames.query(frames.usable(marked), settings.sql)
            context.tally.written += _publish(table, written, settings.partition_by, batch)
            context.ledger.finish(batch, _latest(marked, settings.watermark))
        finally:
            marked.unpersist()

    return Plan(parsed, step)


def read_parquet(spark: SparkSession, path: str) -> DataFrame:
    """The table, with the columns of all its files."""
    schema = _known(Folder(spark, path))
    if schema is None:
        raise FileNotFoundError(f"{path} is no table of a sink: it has no {_SCHEMA}")
    return spark.read.schema(schema).parquet(path)


def late(parsed: DataFrame, watermark: Watermark | None, event_time_ms: int | None) -> DataFrame:
    """A reason against the rows that are older than the latest event before this batch by more than the delay."""
    if watermark is None or event_time_ms is None:
        return parsed
    event = F.col("data").getField(watermark.column)
    limit = F.timestamp_millis(F.lit(event_time_ms)) - _delay(watermark)
    text = F.concat(F.lit("late: "), event.cast("string"), F.lit(" is before the watermark "), limit.cast("string"))
    return parsed.withColumn("reason", F.coalesce("reason", F.when(event < limit, text)))


def _delay(watermark: Watermark) -> Column:
    return F.expr(f"INTERVAL '{watermark.delay}'")


def _latest(parsed: DataFrame, watermark: Watermark | None) -> int | None:
    """The latest event time among the rows that can be used."""
    if watermark is None:
        return None
    event = F.unix_millis(F.col("data").getField(watermark.column).cast("timestamp"))
    row = parsed.where("reason IS NULL").agg(F.max(event)).first()
    return None if row is None else row[0]


def _publish(table: Folder, rows: DataFrame, partition_by: list[str], batch: Batch) -> int:
    prefix = batch.mark.replace("/", "-")
    staging = f"{_STAGING}/{prefix}"
    if batch.repeated:
        for name in list(table.walk()):
            if name.rpartition("/")[2].startswith(f"{prefix}-"):
                table.delete(name)
    counted = Observation()
    (
        rows.observe(counted, F.count(F.lit(1)).alias("rows"))
        .write.mode("overwrite")
        .partitionBy(*partition_by)
        .parquet(f"{table.path}/{staging}")
    )
    for name in list(table.walk(staging)):
        folder, _, file = name.removeprefix(f"{staging}/").rpartition("/")
        if file.endswith(".parquet"):
            table.move(name, f"{folder}/{prefix}-{file}" if folder else f"{prefix}-{file}")
    table.delete(staging)
    return int(counted.get["rows"])


def _known(table: Folder) -> StructType | None:
    text = table.read(_SCHEMA)
    return None if text is None else StructType.fromJson(json.loads(text))
