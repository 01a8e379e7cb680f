"""Appending the rows of a batch to a topic, each once, although Spark's sink alone writes a repeated batch twice.

Every record bears the mark of its batch in a header. A batch that is repeated after the job was stopped reads what
stands in the topic since it first began, takes those rows off and appends the rest, in the order of its first attempt.

What this does not cover: Spark retries a failed task inside a running batch, and the rows that task had sent already
are then there twice; so does speculative execution. Neither happens on a healthy `local[N]`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pylogd.spark_connector.pipelines.ledger import Batch
from pylogd.spark_connector.pipelines.records import header, with_headers
from pylogd.spark_connector.pipelines.settings import Job
from pylogd.spark_connector.pipelines.topics import Offsets, Topics
from pyspark.sql import Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH = "pylogd.batch"
_IDENTITY = ("key", "value", "headers")
# monotonically_increasing_id: the partition's number above, the row's number in it in the lower bits.
_PARTITION_SHIFT = 33


def append(spark: SparkSession, job: Job, topics: Topics, topic: str, rows: DataFrame, batch: Batch) -> None:
    """Appends rows of key, value, headers and perhaps partition."""
    marked = with_headers(rows, header(BATCH, F.lit(batch.mark)))
    if batch.repeated and (now := topics.ends(topic)):
        marked = remaining(marked, _written(spark, job, topic, batch, now))
    writer = marked.write.format("kafka").options(**job.client_options())
    writer.option("topic", topic).option("includeHeaders", "true").save()


def _written(spark: SparkSession, job: Job, topic: str, batch: Batch, now: Offsets) -> DataFrame:
    """What the batch left in the topic the first time."""
    # A partition that is new since then is read from its start.
    begin = {str(partition): batch.ends[topic].get(partition, 0) for partition in now}
    end = {str(partition): offset for partition, offset in now.items()}
    records = (
        spark.read.format("kafka")
        .options(**job.client_options())
        .option("subscribe", topic)
        .option("includeHeaders", "true")
        .option("startingOffsets", json.dumps({topic: begin}))
        .option("endingOffsets", json.dumps({topic: end}))
        .load()
    )
    mine = F.exists("headers", lambda h: (h.key == BATCH) & (h.value == F.lit(batch.mark).cast("binary")))
    return records.where(mine).select(*_IDENTITY)


def remaining(rows: DataFrame, written: DataFrame) -> DataFrame:
    """The rows that are not written, copy by copy, in their order within each partition.

    The order matters: of two records with one key the later one must stay the later one. A producer writes one key's
    records in order, so what is written of them is their beginning.
    """
    numbered = rows.withColumn("_row", F.monotonically_increasing_id())
    copies = Window.partitionBy(*_IDENTITY).orderBy("_row")
    counts = written.groupBy(*[F.col(name).alias(f"_{name}") for name in _IDENTITY]).agg(F.count("*").alias("_written"))
    same = [F.col(name).eqNullSafe(F.col(f"_{name}")) for name in _IDENTITY]
    rest = (
        numbered.withColumn("_copy", F.row_number().over(copies))
        .join(counts, on=same, how="left")
        .where("_copy > coalesce(_written, 0)")
    )
    partition = F.shiftright("_row", _PARTITION_SHIFT)
    return rest.repartition(partition).sortWithinPartitions("_row").select(*rows.columns)
