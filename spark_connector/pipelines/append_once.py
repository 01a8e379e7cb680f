"""Appending the rows of a batch to a topic, each once, although Spark's sink alone writes a repeated batch twice.

Every record bears the mark of its batch in a header. A batch that is repeated after the job was stopped reads what
stands in the topic since it first began, takes those rows off and appends the rest, in the order of its first attempt.
That needs the same rows again. Filters, projections and joins give them; sums of fractions and lists gathered from
many tasks need not, so what an aggregation gave is kept beside the checkpoint before it is sent (`kept`).

What this does not cover: Spark retries a failed task inside a running batch, and the rows that task had sent already
are then there twice; so does speculative execution. Neither happens on a healthy `local[N]`. Nor are two runs of one
job at once: nobody else may write with the same checkpoint. And what a killed run had sent can be taken off only where
it can be read, below the high watermark: in-sync replicas that lag for as long as the job takes to start again hide it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pylogd.spark_connector.pipelines.folder import Folder
from pylogd.spark_connector.pipelines.frames import header, with_headers
from pylogd.spark_connector.pipelines.job_settings import Job
from pylogd.spark_connector.pipelines.ledger import Batch
from pylogd.spark_connector.pipelines.topic_admin import Offsets, Topics
from pyspark.sql import Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The header with the mark.
BATCH = "pylogd.batch"
_IDENTITY = ("key", "value", "headers")
# monotonically_increasing_id: the partition's number above, the row's number in it in the lower bits.
_PARTITION_SHIFT = 33
_KEPT_ROWS, _KEPT_MARK = "pylogd/rows", "pylogd/rows.mark"


def append(spark: SparkSession, job: Job, topics: Topics, topic: str, rows: DataFrame, batch: Batch) -> None:
    """Appends rows of key, value, headers and perhaps partition."""
    marked = with_headers(rows, header(BATCH, F.lit(batch.mark)))
    if batch.repeated and (now := topics.ends(topic)):
        before = _written(spark, job, topic, batch.mark, _began(topics, topic, batch, now), now)
        marked = remaining(marked, before, compacted=topics.is_compacted(topic))
    _send(job, topic, marked)


def _send(job: Job, topic: str, rows: DataFrame) -> None:
    writer = rows.write.format("kafka").options(**job.client_options())
    writer.option("topic", topic).option("includeHeaders", "true").save()


def _began(topics: Topics, topic: str, batch: Batch, now: Offsets) -> Offsets:
    """Where the topic ended when the batch first began, as far as that is still there."""
    first = topics.starts(topic)
    began = {}
    for partition, end in now.items():
        # A partition that is new since then is read from its start, and so is a topic that was made anew.
        at = batch.ends[topic].get(partition, 0)
        began[partition] = at if first[partition] <= at <= end else first[partition]
    return began


def _written(spark: SparkSession, job: Job, topic: str, mark: str, began: Offsets, now: Offsets) -> DataFrame:
    """What the batch left in the topic the first time."""
    records = (
        spark.read.format("kafka")
        .options(**job.client_options())
        .option("subscribe", topic)
        .option("includeHeaders", "true")
        .option("startingOffsets", json.dumps({topic: began}))
        .option("endingOffsets", json.dumps({topic: now}))
        .load()
    )
    mine = F.exists("headers", lambda h: (h.key == BATCH) & (h.value == F.lit(mark).cast("binary")))
    return records.where(mine).select(*_IDENTITY)


def remaining(rows: DataFrame, written: DataFrame, *, compacted: bool = False) -> DataFrame:
    """The rows that are not written, copy by copy, in their order within each partition.

    The order matters: of two records with one key the later one must stay the later one. A producer writes one key's
    records in order, so what is written of them is their beginning. Only compaction may have taken some of that
    beginning away; then the rest of the key's records follow once more, so that the last one is the last again.
    """
    numbered = rows.withColumn("_row", F.monotonically_increasing_id())
    copies = Window.partitionBy(*_IDENTITY).orderBy("_row")
    counts = written.groupBy(*[F.col(name).alias(f"_{name}") for name in _IDENTITY]).agg(F.count("*").alias("_written"))
    same = [F.col(name).eqNullSafe(F.col(f"_{name}")) for name in _IDENTITY]
    rest = (
        numbered.withColumn("_copy", F.row_number().over(copies))
        .join(counts, on=same, how="left")
        .withColumn("_missing", F.expr("_copy > coalesce(_written, 0)"))
    )
    if compacted:
        first = F.min(F.when(F.col("_missing"), F.col("_row"))).over(Window.partitionBy("key"))
        rest = rest.withColumn("_first", first).where("_row >= _first")
    else:
        rest = rest.where("_missing")
    partition = F.shiftright("_row", _PARTITION_SHIFT)
    return rest.repartition(partition).sortWithinPartitions("_row").select(*rows.columns)


def kept(spark: SparkSession, checkpoint: Folder, rows: DataFrame, batch: Batch) -> DataFrame:
    """The rows as the batch had them the first time, written beside the checkpoint before anyone else sees them."""
    path = f"{checkpoint.path}/{_KEPT_ROWS}"
    if checkpoint.read(_KEPT_MARK) == batch.mark:
        # They must be computed all the same: that is how Spark brings its state up to this batch.
        rows.write.format("noop").mode("overwrite").save()
    else:
        rows.write.mode("overwrite").parquet(path)
        checkpoint.write(_KEPT_MARK, batch.mark)
    return spark.read.schema(rows.schema).parquet(path)
