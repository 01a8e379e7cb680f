"""What every pipeline works with: the session, the job, its ledger, and what it counts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pylogd.spark_connector.pipelines.append_once import append, kept
from pylogd.spark_connector.pipelines.columns import ColumnError
from pylogd.spark_connector.pipelines.folder import Folder
from pylogd.spark_connector.pipelines.job_settings import Files, Job, Pipeline, Reader, SettingError
from pylogd.spark_connector.pipelines.ledger import Batch, Ledger
from pylogd.spark_connector.pipelines.topic_admin import Offsets, TopicError, Topics
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Names under which Spark reports what it counted in a batch: records that did not parse, rows that were written.
PARSED, WRITTEN = "pylogd.parsed", "pylogd.written"
#: Writes one batch: its rows and its number.
Step = Callable[["DataFrame", int], None]


@dataclass(frozen=True)
class Plan:
    """A pipeline ready to start: a streaming frame, what is done with each batch of it, and when it is over early."""

    rows: DataFrame
    step: Step
    mode: str = "append"
    over: Callable[[dict[str, Any]], bool] = lambda _progress: False


@dataclass
class Tally:
    """What a pipeline has done in this run."""

    batches: int = 0
    read: int = 0
    written: int = 0
    refused: int = 0


@dataclass
class Context:
    """One pipeline in one run."""

    spark: SparkSession
    job: Job
    pipeline: Pipeline
    topics: Topics
    ledger: Ledger = field(init=False)
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.spark, self.checkpoint, self.topics, self.pipeline.outputs())

    @property
    def checkpoint(self) -> str:
        return self.job.checkpoint_of(self.pipeline)

    def append(self, topic: str, rows: DataFrame, batch: Batch) -> None:
        """Appends the rows of a batch to a topic, each once."""
        append(self.spark, self.job, self.topics, topic, rows, batch)

    def to_topic(self, topic: str, rows: DataFrame, mode: str = "append", *, aggregated: bool = False) -> Plan:
        """The plan of a pipeline whose rows are all appended to one topic."""
        counted = rows.observe(WRITTEN, F.count(F.lit(1)).alias("rows"))
        checkpoint = Folder(self.spark, self.checkpoint)

        def step(rows: DataFrame, number: int) -> None:
            batch = self.ledger.begin(number)
            self.append(topic, kept(self.spark, checkpoint, rows, batch) if aggregated else rows, batch)

        return Plan(counted, step, mode)

    def stream(self, settings: Reader, start: Offsets | None = None) -> DataFrame:
        """The topic a pipeline reads, from `start` or its own setting."""
        if not self.topics.ends(settings.input):
            name = settings.input
            raise TopicError(f"there is no topic {name!r}; write to it first, or declare [topics.{name}]")
        if start is None and not isinstance(settings.start, str):
            start = self.topics.resolve(settings.input, settings.start)
        reader = (
            self.spark.readStream.format("kafka")
            .options(**self.job.client_options())
            .option("subscribe", settings.input)
            .option("includeHeaders", "true")
            .option("startingOffsets", settings.start if start is None else json.dumps({settings.input: start}))
        )
        if settings.batch:
            reader = reader.option("maxOffsetsPerTrigger", str(settings.batch))
        return reader.load()

    def files(self, files: Files, *, streaming: bool) -> DataFrame:
        """Rows of files, of a table to join with, or of a generator."""
        reader = (self.spark.readStream if streaming else self.spark.read).format(files.format).options(**files.options)
        if files.schema:
            reader = reader.schema(files.schema)
        elif streaming and files.path:
            # A stream must know its columns before it starts; a look at what is there tells them.
            reader = reader.schema(self.files(files, streaming=False).schema)
        return reader.load(files.path) if files.path else reader.load()

    @contextmanager
    def blame(self, key: str) -> Iterator[None]:
        """What Spark has against an expression, a schema or a path becomes an error about the setting it came from."""
        from pyspark.errors import PySparkException

        try:
            yield
        except (PySparkException, ColumnError) as error:
            lines = str(error).strip().splitlines()
            raise SettingError(f"pipeline.{self.pipeline.name}.{key}", lines[0]) from None
