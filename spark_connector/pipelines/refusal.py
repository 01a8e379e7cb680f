"""Records that cannot be used: to the dead-letter topic with the reason in a header, or the end of the pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pylogd.spark_connector.pipelines import frames
from pylogd.spark_connector.pipelines.job_settings import ToTable
from pylogd.spark_connector.pipelines.ledger import Batch
from pylogd.spark_connector.pipelines.pipeline_context import Context
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class RecordError(Exception):
    """A record that cannot be used, and nowhere to put it; the message is for the user."""


def refuse(context: Context, settings: ToTable, parsed: DataFrame, batch: Batch) -> None:
    """Deals with the rows of a batch that have a reason against them."""
    bad = parsed.where("reason IS NOT NULL")
    earliest = F.min(F.struct("partition", "offset", "reason")).alias("first")
    count, first = bad.agg(F.count(F.lit(1)), earliest).first()
    if count == 0:
        return
    if not settings.dead_letter:
        raise RecordError(
            f"offset {first.offset} of partition {first.partition} of {settings.input}: {first.reason}; "
            "`dead_letter` names a topic where such records can go"
        )
    context.append(settings.dead_letter, frames.refused(parsed), batch)
    context.tally.refused += count
