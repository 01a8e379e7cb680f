"""A compacted topic into a table that holds the latest value of each key; a tombstone takes its key out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pylogd.spark_connector.pipelines import frames
from pylogd.spark_connector.pipelines.job_settings import Materialise
from pylogd.spark_connector.pipelines.pipeline_context import Context, Plan
from pylogd.spark_connector.pipelines.refusal import refuse
from pylogd.spark_connector.pipelines.table import KEY, PLACE, TOMBSTONE, Table, latest
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def plan(context: Context, settings: Materialise) -> Plan:
    """Each batch is merged into the table; what cannot be used is refused."""
    with context.blame("schema"):
        parsed = frames.parse(context.stream(settings), settings, tombstones=True)
    with context.blame("key"):
        parsed = parsed.withColumn(KEY, F.expr(settings.key))
    no_key = F.when(F.col(KEY).isNull(), F.lit("there is no key"))
    parsed = parsed.withColumn("reason", F.coalesce(no_key, "reason"))
    table = Table(context.spark, settings.output, settings.buckets)
    with context.blame("schema"):
        table.check(changes(parsed).drop(TOMBSTONE).schema)

    def step(rows: DataFrame, number: int) -> None:
        batch = context.ledger.begin(number)
        rows.persist()
        try:
            refuse(context, settings, rows, batch)
            context.tally.written += table.merge(latest(changes(rows)), batch.mark)
        finally:
            rows.unpersist()

    return Plan(parsed, step)


def changes(parsed: DataFrame) -> DataFrame:
    """The key, the columns of the value, where the record stands, and whether it takes the key out."""
    place = [F.col(name.removeprefix("_")).alias(name) for name in PLACE]
    gone = F.col("value").isNull().alias(TOMBSTONE)
    return parsed.where("reason IS NULL").select(KEY, "data.*", *place, gone)


def read_table(spark: SparkSession, path: str) -> DataFrame:
    """The table as it is now."""
    return Table(spark, path, 1).read()
