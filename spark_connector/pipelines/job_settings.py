"""What a pipeline can be told: one dataclass per kind, and the job that holds them.

The same names serve in TOML and in Python. Every kind has an `input` and an `output`; the rest has defaults. Nothing
here needs Spark, so that a file can be checked anywhere. The text of a setting is what an error about it says was
expected.
"""
# ruff: noqa: RUF009 (`setting` is dataclasses.field)

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, TypeAlias

#: Where reading starts or ends: `earliest`, `latest`, a moment, or an offset per partition.
Position: TypeAlias = str | datetime | dict[str, int]

AVAILABLE_NOW = "available-now"
_INTERVAL = re.compile(r"[1-9][0-9]* (milliseconds?|seconds?|minutes?|hours?|days?)")
# A name is a folder below the checkpoints and a consumer group.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class SettingError(ValueError):
    """A declared value that cannot be used: `key` is its dotted name, the message says what was expected."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}")
        self.key = key
        self.problem = problem


def setting(expected: str, default: Any = dataclasses.MISSING) -> Any:
    """A field of a settings dataclass, and what an error about it says was expected."""
    metadata = {"expected": expected}
    if isinstance(default, dict | list):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Files:
    """Files, a generator or anything else that Spark reads by a format name."""

    format: str = setting("a format that Spark reads: json, csv, parquet, orc, text, avro, rate, ...")
    path: str = setting("a folder, file or pattern", "")
    schema: str = setting('columns as in SQL, "id BIGINT, name STRING"; without it Spark infers them once', "")
    options: dict[str, str] = setting("options of the format, as Spark's documentation has them", {})


@dataclass(frozen=True, kw_only=True)
class Watermark:
    """How late events may be."""

    column: str = setting("the column with the time of the event")
    delay: str = setting('how late a record may be, "10 minutes"')


@dataclass(frozen=True, kw_only=True)
class Topic:
    """A topic that is created before the pipelines start, unless it is there."""

    partitions: int = setting("a number from 1 on", 1)
    replicas: int = setting("a number from 1 on; without it the broker's default", -1)
    config: dict[str, str] = setting('topic settings, {"cleanup.policy" = "compact"}', {})


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """What all kinds have."""

    kind: ClassVar[str]

    name: str
    trigger: str = setting(f'"{AVAILABLE_NOW}" (what is there, then end) or an interval such as "10 seconds"', "")
    checkpoint: str = setting("a folder; without it the job's `checkpoints` and the pipeline's name", "")
    group: str = setting("the consumer group that shows the progress; without it the pipeline's name", "")

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise SettingError(self.name or "name", "expected a name of letters, digits, dots, dashes and underscores")
        if self.trigger:
            check_trigger(f"{self.name}.trigger", self.trigger)

    def refuse(self, key: str, problem: str) -> SettingError:
        """The error about one of its settings."""
        return SettingError(f"{self.name}.{key}", problem)

    def outputs(self) -> list[str]:
        """The topics it writes."""
        return []


def check_trigger(key: str, trigger: str) -> None:
    """SettingError unless it is one."""
    if trigger != AVAILABLE_NOW and not _INTERVAL.fullmatch(trigger):
        raise SettingError(key, f'expected "{AVAILABLE_NOW}" or an interval such as "10 seconds", not {trigger!r}')


@dataclass(frozen=True, kw_only=True)
class Reader(Pipeline):
    """What all kinds that read a topic have."""

    input: str = setting("the topic to read")
    start: Position = setting("earliest, latest, a date and time, or { partition = offset, ... }", "earliest")
    batch: int = setting("the most records in one step, or 0 for no limit", 0)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_position("start", self.start)
        if self.batch < 0:
            raise self.refuse("batch", f"expected 0 or more, not {self.batch}")

    def _check_position(self, key: str, position: Position) -> None:
        if isinstance(position, str) and position not in ("earliest", "latest"):
            raise self.refuse(key, f'expected "earliest", "latest", a date and time or offsets, not {position!r}')
        if isinstance(position, datetime) and position.tzinfo is None:
            raise self.refuse(key, f"expected a time zone too, as in {position.isoformat()}Z")
        if isinstance(position, dict):
            for partition, offset in position.items():
                if not partition.isdigit() or offset < 0:
                    raise self.refuse(f"{key}.{partition}", "expected a partition number and an offset from 0 on")


FORMATS = ("json", "csv", "avro", "text")


@dataclass(frozen=True, kw_only=True)
class Parser(Reader):
    """What all kinds that look into values have."""

    format: str = setting("json, csv, avro or text", "json")
    schema: str = setting('columns as in SQL, "id BIGINT NOT NULL, name STRING", or an Avro schema in JSON', "")
    payload: str = setting("an SQL expression for the bytes to parse", "value")
    options: dict[str, str] = setting("options of Spark's from_json, from_csv or from_avro", {})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.format not in FORMATS:
            raise self.refuse("format", f"expected one of {', '.join(FORMATS)}, not {self.format!r}")
        if self.format == "text" and self.schema:
            raise self.refuse("schema", "format = text has none: the column is `value`")
        if self.format != "text" and not self.schema:
            expected = "an Avro schema in JSON" if self.format == "avro" else 'columns as in SQL, "id BIGINT, ..."'
            raise self.refuse("schema", f"missing; expected {expected}")


@dataclass(frozen=True, kw_only=True)
class Ingest(Pipeline):
    """Files or generated rows into a topic."""

    kind: ClassVar[str] = "ingest"
    input: Files = setting("a table with `format` and `path`")
    output: str = setting("the topic to write")
    key: str = setting("a column or SQL expression; without it records have no key", "")
    value: str = setting("an SQL expression", "to_json(struct(*))")

    def outputs(self) -> list[str]:
        return [self.output]


@dataclass(frozen=True, kw_only=True)
class Transform(Parser):
    """Topic to topic through SQL over the view `input`."""

    kind: ClassVar[str] = "transform"
    output: str = setting("the topic to write")
    sql: str = setting("a SELECT over `input` and the tables", "SELECT * FROM input")
    key: str = setting("a column or SQL expression; without it records have no key", "")
    value: str = setting("an SQL expression", "to_json(struct(*))")
    watermark: Watermark | None = setting("a table with `column` and `delay`", None)
    mode: str = setting("append, update or complete", "append")
    tables: dict[str, Files] = setting("tables to join with, each with `format` and `path`", {})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mode not in ("append", "update", "complete"):
            raise self.refuse("mode", f"expected append, update or complete, not {self.mode!r}")
        if "input" in self.tables:
            raise self.refuse("tables.input", "`input` is the topic; expected another name")

    def outputs(self) -> list[str]:
        return [self.output]


@dataclass(frozen=True, kw_only=True)
class ToTable(Parser):
    """What both kinds that write a table have."""

    output: str = setting("the folder of the table")
    dead_letter: str = setting("the topic for records that cannot be used; without it they stop the pipeline", "")

    def outputs(self) -> list[str]:
        return [self.dead_letter] if self.dead_letter else []


@dataclass(frozen=True, kw_only=True)
class Sink(ToTable):
    """Topic to partitioned Parquet."""

    kind: ClassVar[str] = "sink"
    sql: str = setting("a SELECT over `input` without aggregation", "SELECT * FROM input")
    partition_by: list[str] = setting("a list of columns", [])
    watermark: Watermark | None = setting("a table with `column` and `delay`: what is later is refused", None)


@dataclass(frozen=True, kw_only=True)
class Materialise(ToTable):
    """A compacted topic into a table that holds the latest value of each key."""

    kind: ClassVar[str] = "materialise"
    key: str = setting("an SQL expression over `key`", "CAST(key AS STRING)")
    buckets: int = setting("into how many parts the table is split; a step rewrites only the parts it touches", 16)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.buckets < 1:
            raise self.refuse("buckets", f"expected 1 or more, not {self.buckets}")


@dataclass(frozen=True, kw_only=True)
class Replay(Reader):
    """A range of a topic once more, into another topic."""

    kind: ClassVar[str] = "replay"
    # Smaller than the whole, so that little is read beyond the end of the range.
    batch: int = setting("the most records in one step, or 0 for no limit", 1_000_000)
    output: str = setting("the topic to write")
    #: Of partitions that are not named all is replayed.
    end: Position = setting("earliest, latest, a date and time, or { partition = offset, ... }; exclusive", "latest")
    where: str = setting("an SQL condition over key, value, partition, offset, timestamp", "")
    keep_partitions: bool = setting("true (same partition numbers) or false (by key)", False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_position("end", self.end)
        if self.input == self.output:
            raise self.refuse("output", f"expected another topic than the input {self.input!r}")
        if self.trigger not in ("", AVAILABLE_NOW):
            raise self.refuse("trigger", f'a replay ends: expected "{AVAILABLE_NOW}"')

    def outputs(self) -> list[str]:
        return [self.output]


KINDS: dict[str, type[Pipeline]] = {cls.kind: cls for cls in (Ingest, Transform, Sink, Materialise, Replay)}


@dataclass(frozen=True, kw_only=True)
class Job:
    """Pipelines that run together: what a file declares."""

    bootstrap: str = setting("host:port of one or more brokers", "127.0.0.1:9092")
    checkpoints: str = setting("the folder where the pipelines keep how far they are")
    trigger: str = setting(f'"{AVAILABLE_NOW}" or an interval such as "10 seconds"', AVAILABLE_NOW)
    together: bool = setting("true (bounded pipelines all at once) or false (one after the other)", False)
    kafka: dict[str, str] = setting("settings of Kafka's clients", {})
    spark: dict[str, str] = setting("Spark configuration", {})
    topics: dict[str, Topic] = setting("tables with `partitions`, `replicas` and `config`", {})
    pipelines: list[Pipeline] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_trigger("trigger", self.trigger)
        names = [pipeline.name for pipeline in self.pipelines]
        for name in names:
            if names.count(name) > 1:
                raise SettingError(name, "two pipelines have this name; expected one each")

    def trigger_of(self, pipeline: Pipeline) -> str:
        """Its own trigger, or the job's; a replay ends in any case."""
        return AVAILABLE_NOW if isinstance(pipeline, Replay) else pipeline.trigger or self.trigger

    def checkpoint_of(self, pipeline: Pipeline) -> str:
        """Its own folder, or one of its name below the job's."""
        return pipeline.checkpoint or f"{self.checkpoints.rstrip('/')}/{pipeline.name}"

    def client_options(self) -> dict[str, str]:
        """Options for Spark's Kafka source and sink."""
        settings = {f"kafka.{name}": value for name, value in self.kafka.items()}
        return {"kafka.bootstrap.servers": self.bootstrap} | settings
