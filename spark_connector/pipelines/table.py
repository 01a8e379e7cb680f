"""The table of the latest value per key: Parquet files in buckets, and a manifest that says which files are the table.

A step writes new files for the buckets it touches and then replaces `_manifest.json`, in one step: a reader sees the
table before or after a batch, never between. The files a manifest no longer names stay until the next batch, for those
who are still reading them. Readers other than Spark take the list of files from the manifest.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from itertools import chain
from typing import TYPE_CHECKING

from pylogd.spark_connector.pipelines.columns import merge
from pylogd.spark_connector.pipelines.folder import Folder
from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MANIFEST = "_manifest.json"
KEY, BUCKET, TOMBSTONE = "_key", "_bucket", "_tombstone"
PLACE = ("_partition", "_offset", "_timestamp")


@dataclass(frozen=True)
class Manifest:
    """One state of the table."""

    #: The batch that made this state.
    mark: str
    buckets: int
    schema: StructType
    #: Files of each bucket, relative to the table's folder.
    files: dict[str, list[str]]
    #: No longer part of the table, and deleted with the next batch.
    retired: list[str]


class Table:
    """`buckets` counts when the table is made; afterwards the manifest has it."""

    def __init__(self, spark: SparkSession, path: str, buckets: int) -> None:
        self._spark = spark
        self._folder = Folder(spark, path)
        self._buckets = buckets

    def manifest(self) -> Manifest | None:
        """The state of the table now; None before the first batch."""
        text = self._folder.read(_MANIFEST)
        if text is None:
            return None
        kept = json.loads(text)
        return Manifest(**(kept | {"schema": StructType.fromJson(kept["schema"])}))

    def read(self) -> DataFrame:
        """The rows of the table as they are now."""
        manifest = self.manifest()
        if manifest is None:
            raise FileNotFoundError(f"{self._folder.path} is no materialised table: it has no {_MANIFEST}")
        return self._rows([file for files in manifest.files.values() for file in files], manifest.schema)

    def check(self, schema: StructType) -> None:
        """ColumnError if rows of such columns do not fit the table."""
        if manifest := self.manifest():
            merge(manifest.schema, schema)

    def merge(self, changes: DataFrame, mark: str) -> int:
        """Puts in changes (key, columns, place, tombstone) once for each mark; returns how many rows were written."""
        before = self.manifest() or Manifest("", self._buckets, StructType([]), {}, [])
        if before.mark == mark:
            return 0
        schema = merge(before.schema, changes.drop(TOMBSTONE).schema)
        bucket = F.expr(f"pmod(hash({KEY}), {before.buckets})")
        touched = sorted(str(row[0]) for row in changes.select(bucket).distinct().collect())
        old = [file for name in touched for file in before.files.get(name, [])]
        known = self._rows(old, schema).withColumn(TOMBSTONE, F.lit(False))
        rows = latest(known.unionByName(changes, allowMissingColumns=True)).where(f"NOT {TOMBSTONE}").drop(TOMBSTONE)
        files, count = self._write(rows.withColumn(BUCKET, bucket), mark)
        after = before.files | {name: files.get(name, []) for name in touched}
        self._delete(before.retired, [*chain(*before.files.values(), *after.values())])
        self._publish(Manifest(mark, before.buckets, schema, after, old))
        return count

    def _rows(self, files: list[str], schema: StructType) -> DataFrame:
        if not files:
            return self._spark.createDataFrame([], schema)
        return self._spark.read.schema(schema).parquet(*[f"{self._folder.path}/{file}" for file in files])

    def _write(self, rows: DataFrame, mark: str) -> tuple[dict[str, list[str]], int]:
        """The new files by bucket, and the number of rows in them."""
        folder = f"data/{mark.replace('/', '-')}"
        counted = Observation()
        (
            rows.observe(counted, F.count(F.lit(1)).alias("rows"))
            .repartition(BUCKET)
            .write.mode("overwrite")
            .partitionBy(BUCKET)
            .parquet(f"{self._folder.path}/{folder}")
        )
        files: dict[str, list[str]] = {}
        for name in self._folder.walk(folder):
            if name.endswith(".parquet"):
                bucket = name.split("/")[-2].removeprefix(f"{BUCKET}=")
                files.setdefault(bucket, []).append(name)
        return files, int(counted.get["rows"])

    def _delete(self, retired: list[str], still_read: list[str]) -> None:
        """Files that nobody needs any more, and the folders of batches of which none is left."""
        folders = {name.rpartition(f"/{BUCKET}=")[0] for name in still_read}
        for name in retired:
            folder = name.rpartition(f"/{BUCKET}=")[0]
            self._folder.delete(name if folder in folders else folder)

    def _publish(self, manifest: Manifest) -> None:
        entry = asdict(manifest) | {"schema": manifest.schema.jsonValue()}
        self._folder.write(_MANIFEST, json.dumps(entry))


def latest(rows: DataFrame) -> DataFrame:
    """The last row of each key.

    Within a partition the offset decides. A key is in two partitions only if partitions were added, and then the
    timestamp decides.
    """
    whole = F.struct(*[F.col(name) for name in rows.columns])
    in_partition = rows.groupBy(KEY, "_partition").agg(F.max_by(whole, "_offset").alias("row"))
    last = in_partition.groupBy(KEY).agg(F.max_by("row", F.col("row._timestamp")).alias("row"))
    return last.select("row.*")
