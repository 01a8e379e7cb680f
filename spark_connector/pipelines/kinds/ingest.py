"""Files or generated rows into a topic, with a key."""

from __future__ import annotations

from pylogd.spark_connector.pipelines import frames
from pylogd.spark_connector.pipelines.job_settings import Ingest
from pylogd.spark_connector.pipelines.pipeline_context import Context, Plan


def plan(context: Context, settings: Ingest) -> Plan:
    """Rows as they come from the source, each a record."""
    with context.blame("input"):
        rows = context.files(settings.input, streaming=True)
    with context.blame("key"):
        rows.selectExpr(settings.key or "NULL")
    with context.blame("value"):
        outgoing = frames.outgoing(rows, settings.key, settings.value)
    return context.to_topic(settings.output, outgoing)
