"""Records as data frames: values parsed, what is wrong with one named. Pure: a frame in, a frame out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pylogd.spark_connector.pipelines.job_settings import Parser
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructField, StructType

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Headers of a record that was refused: why, and where it stands in the topic it came from.
REASON = "pylogd.error.reason"
ORIGIN = "pylogd.origin"
ORIGIN_TIMESTAMP = "pylogd.origin.timestamp"
HEADERS = "array<struct<key:string,value:binary>>"
_CORRUPT = "_corrupt_record"
_SOURCE = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")


def parse(records: DataFrame, settings: Parser, *, tombstones: bool = False) -> DataFrame:
    """The source's columns as they are, `data` (a struct), and `reason`, which is null for a record that can be used.

    With tombstones a record without a value can be used: its data is null.
    """
    parsed = _parse(records, settings)
    value, reason = F.col("value"), F.col("reason")
    if tombstones:
        parsed = parsed.withColumn("data", F.when(value.isNotNull(), F.col("data")))
        return parsed.withColumn("reason", F.when(value.isNotNull(), reason))
    return parsed.withColumn("reason", F.when(value.isNull(), F.lit("there is no value")).otherwise(reason))


def _parse(records: DataFrame, settings: Parser) -> DataFrame:
    payload = F.expr(settings.payload)
    text = payload.cast("string")
    if settings.format == "text":
        return records.withColumn("data", F.struct(text.alias("value"))).withColumn("reason", _no_reason())
    if settings.format == "avro":
        return _parse_avro(records, settings, payload)
    schema = DataType.fromDDL(settings.schema)
    assert isinstance(schema, StructType)
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT} | settings.options
    lenient = StructType([*_nullable(schema), StructField(_CORRUPT, StringType())])
    if settings.format == "json":
        parsed = records.withColumn("data", F.from_json(text, lenient, options))
        syntax = F.when(F.try_parse_json(text).isNull(), F.lit("the value is not JSON"))
    else:
        parsed = records.withColumn("data", F.from_csv(text, lenient.simpleString()[len("struct<") : -1], options))
        syntax = _no_reason()
    corrupt = F.when(
        F.col(f"data.{_CORRUPT}").isNotNull() | F.col("data").isNull(),
        F.coalesce(syntax, F.lit("the value does not fit the schema")),
    )
    reason = F.coalesce(corrupt, _missing(schema))
    return parsed.withColumn("reason", reason).withColumn("data", F.col("data").dropFields(_CORRUPT))


def _parse_avro(records: DataFrame, settings: Parser, payload: Column) -> DataFrame:
    from pyspark.sql.avro.functions import from_avro

    parsed = records.withColumn("data", from_avro(payload, settings.schema, {"mode": "PERMISSIVE"} | settings.options))
    required = [
        field["name"]
        for field in json.loads(settings.schema)["fields"]
        if field["type"] != "null" and not (isinstance(field["type"], list) and "null" in field["type"])
    ]
    # What Avro cannot decode comes as a row of nulls, so a required field that is null tells it.
    broken = F.col("data").isNull()
    for name in required:
        broken = broken | F.col("data").getField(name).isNull()
    return parsed.withColumn("reason", F.when(broken, F.lit("the value is not Avro of the schema")))


def _no_reason() -> Column:
    return F.lit(None).cast("string")


def _missing(schema: StructType) -> Column:
    """The first column that is declared NOT NULL and is null. Spark's parsers do not look at that themselves."""
    checks = [
        F.when(F.col("data").getField(field.name).isNull(), F.lit(f"column {field.name} is null or missing"))
        for field in schema.fields
        if not field.nullable
    ]
    return F.coalesce(*checks, _no_reason())


def _nullable(schema: StructType) -> list[StructField]:
    return [StructField(field.name, field.dataType, True) for field in schema.fields]


def usable(parsed: DataFrame) -> DataFrame:
    """The rows without a reason against them: the columns of the value, and the source's with an underscore before."""
    good = parsed.where("reason IS NULL")
    return good.select("data.*", *[F.col(name).alias(f"_{name}") for name in _SOURCE])


def query(rows: DataFrame, sql: str) -> DataFrame:
    """SQL over `input`, the columns of the values, and `records`, which has the source's columns too."""
    rows.createOrReplaceTempView("records")
    rows.drop(*[f"_{name}" for name in _SOURCE]).createOrReplaceTempView("input")
    return rows.sparkSession.sql(sql)


def outgoing(rows: DataFrame, key: str, value: str) -> DataFrame:
    """Rows as Spark's sink wants them: key and value as bytes, and headers."""
    made = rows.select(
        F.expr(key).alias("key") if key else F.lit(None).cast("binary").alias("key"), F.expr(value).alias("value")
    )
    return made.select(*[_binary(made, name) for name in ("key", "value")], no_headers().alias("headers"))


def _binary(frame: DataFrame, name: str) -> Column:
    column = F.col(name)
    if frame.schema[name].dataType.typeName() != "binary":
        column = column.cast("string").cast("binary")
    return column.alias(name)


def no_headers() -> Column:
    """An empty list of headers."""
    return F.expr(f"CAST(array() AS {HEADERS})")


def header(name: str, value: Column) -> Column:
    """A header whose value is the text of a column."""
    return F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))


def origin() -> list[Column]:
    """Headers that say where a record stood, and when it was written: Spark's sink cannot keep timestamps."""
    place = F.concat_ws("/", "topic", "partition", "offset")
    return [header(ORIGIN, place), header(ORIGIN_TIMESTAMP, F.unix_millis("timestamp"))]


def with_headers(frame: DataFrame, *added: Column) -> DataFrame:
    """The frame with more headers behind those it has."""
    return frame.withColumn("headers", F.concat(F.coalesce("headers", no_headers()), F.array(*added).cast(HEADERS)))


def refused(parsed: DataFrame) -> DataFrame:
    """The rows with a reason against them, ready for the dead-letter topic: the record as it was, and why."""
    bad = parsed.where("reason IS NOT NULL")
    return with_headers(bad, header(REASON, F.col("reason")), *origin()).select("key", "value", "headers")
