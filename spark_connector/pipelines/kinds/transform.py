"""Topic to topic through SQL: values are parsed into the view `input`, the rows of the query become records."""

from __future__ import annotations

from pylogd.spark_connector.pipelines import frames
from pylogd.spark_connector.pipelines.job_settings import Transform
from pylogd.spark_connector.pipelines.pipeline_context import PARSED, Context, Plan
from pyspark.sql import functions as F


def plan(context: Context, settings: Transform) -> Plan:
    """The rows of the query, each a record; what does not parse is counted and left out."""
    with context.blame("schema"):
        parsed = frames.parse(context.stream(settings), settings)
    # An aggregation sees only what parsed; the others are counted, for the summary.
    parsed = parsed.observe(PARSED, F.count("reason").alias("refused"))
    rows = frames.usable(parsed)
    if settings.watermark:
        with context.blame("watermark"):
            rows = rows.withWatermark(settings.watermark.column, settings.watermark.delay)
    for name, files in settings.tables.items():
        with context.blame(f"tables.{name}"):
            context.files(files, streaming=False).createOrReplaceTempView(name)
    with context.blame("sql"):
        result = frames.query(rows, settings.sql)
    with context.blame("key"):
        result.selectExpr(settings.key or "NULL")
    with context.blame("value"):
        outgoing = frames.outgoing(result, settings.key, settings.value)
    # Spark wants one of these for an aggregation.
    aggregated = settings.watermark is not None or settings.mode != "append"
    return context.to_topic(settings.output, outgoing, settings.mode, aggregated=aggregated)
