"""Runs a job: bounded pipelines one after the other in the order of the file, then all endless ones together.

A pipeline that is stopped, by a signal or by force, goes on from its checkpoint when the job is run again.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pylogd.spark_connector.lag import publish_lag
from pylogd.spark_connector.pipelines.columns import ColumnError
from pylogd.spark_connector.pipelines.job_settings import AVAILABLE_NOW, Job, SettingError
from pylogd.spark_connector.pipelines.kinds import ingest, materialise, replay, sink, transform
from pylogd.spark_connector.pipelines.pipeline_context import PARSED, WRITTEN, Context, Plan, Tally
from pylogd.spark_connector.pipelines.refusal import RecordError
from pylogd.spark_connector.pipelines.topic_admin import TopicError, Topics
from pylogd.spark_connector.setup_errors import innermost
from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Say = Callable[[str], None]
PLANS: dict[str, Callable[[Context, Any], Plan]] = {
    "ingest": ingest.plan,
    "transform": transform.plan,
    "sink": sink.plan,
    "materialise": materialise.plan,
    "replay": replay.plan,
}
# Their messages say all; those of others need the name of the error.
_FOR_USERS = (ColumnError, PySparkException, RecordError, SettingError, TopicError)
_POLL_S = 0.2
_PROGRESS_S = 5.0


class PipelineError(Exception):
    """A pipeline that failed; the message names it and says why."""


class StepError(Exception):
    """What Spark is told when a step fails."""


@dataclass(frozen=True)
class Summary:
    """How one pipeline ended in this run."""

    name: str
    kind: str
    tally: Tally
    seconds: float
    bounded: bool
    finished: bool

    def __str__(self) -> str:
        tally = self.tally
        refused = f", {tally.refused:,} refused" if tally.refused else ""
        end = "done" if self.finished else "stopped; run again to go on"
        return (
            f"{self.name} ({self.kind}): {tally.read:,} read, {tally.written:,} written{refused} "
            f"in {tally.batches:,} batches, {self.seconds:.1f} s; {end}"
        )


def run(job: Job, spark: SparkSession, say: Say = print, stop: threading.Event | None = None) -> list[Summary]:
    """Runs until every bounded pipeline is done, or `stop` is set; PipelineError if one fails."""
    stop = stop or threading.Event()
    groups = {pipeline.name: pipeline.group or pipeline.name for pipeline in job.pipelines}
    try:
        with contextlib.closing(Topics(spark, job)) as topics:
            for name in topics.create_missing(job.topics):
                say(f"created topic {name} with {job.topics[name].partitions} partitions")
            with publish_lag(spark, job.bootstrap, group=lambda query: groups.get(query, query)):
                return _run_all(job, spark, topics, say, stop)
    except TopicError as error:
        raise PipelineError(str(error)) from None


def _run_all(job: Job, spark: SparkSession, topics: Topics, say: Say, stop: threading.Event) -> list[Summary]:
    bounded = [pipeline for pipeline in job.pipelines if job.trigger_of(pipeline) == AVAILABLE_NOW]
    endless = [pipeline for pipeline in job.pipelines if job.trigger_of(pipeline) != AVAILABLE_NOW]
    summaries: list[Summary] = []
    for group in [bounded, endless] if job.together else [*([pipeline] for pipeline in bounded), endless]:
        if group and not stop.is_set():
            summaries += _run_together([Context(spark, job, pipeline, topics) for pipeline in group], say, stop)
    return summaries


def _run_together(contexts: list[Context], say: Say, stop: threading.Event) -> list[Summary]:
    runs: list[_Run] = []
    try:
        for context in contexts:
            runs.append(_Run(context, say))
        ended = [False]
        while not all(ended) and not stop.wait(_POLL_S):
            ended = [each.poll() for each in runs]
    finally:
        for each in runs:
            each.end()
    return [each.summary() for each in runs]


class _Run:
    """One pipeline while it runs."""

    def __init__(self, context: Context, say: Say) -> None:
        pipeline = context.pipeline
        self._name, self._kind = pipeline.name, pipeline.kind
        self._say = say
        self._context = context
        self._failure: Exception | None = None
        self._finished = False
        self._began = self._said = time.monotonic()
        self._seen = -1
        self._plan = PLANS[pipeline.kind](self._context, pipeline)
        trigger = context.job.trigger_of(pipeline)
        self._bounded = trigger == AVAILABLE_NOW
        writer = (
            self._plan.rows.writeStream.queryName(pipeline.name)
            .outputMode(self._plan.mode)
            .option("checkpointLocation", self._context.checkpoint)
            .trigger(**({"availableNow": True} if self._bounded else {"processingTime": trigger}))
            .foreachBatch(self._step)
        )
        try:
            self._query = writer.start()
        except PySparkException as error:
            raise PipelineError(f"{self._name} ({self._kind}): {_reason(error)}") from None
        say(f"{self._name} ({self._kind}): started, checkpoint {self._context.checkpoint}")

    def _step(self, rows: Any, number: int) -> None:
        try:
            self._plan.step(rows, number)
        except Exception as error:
            # Spark reports it as a text inside a text; the user gets the error itself. And Spark must not get a long
            # text: it looks there for signs of an interruption with a pattern that overflows its stack.
            self._failure = error
            raise StepError(_reason(error)) from None

    def poll(self) -> bool:
        """Notes the progress; true when the pipeline has ended by itself."""
        active = self._query.isActive
        self._note_progress()
        if active and self._seen >= 0 and self._plan.over(self._query.lastProgress):
            self._query.stop()
            self._finished = True
            return True
        if active:
            return False
        if (error := self._query.exception()) is not None:
            failure = self._failure or error
            raise PipelineError(f"{self._name} ({self._kind}): {_reason(failure)}") from failure
        self._finished = True
        return True

    def end(self) -> None:
        """Stops it, unless it has ended."""
        if self._query.isActive:
            self._query.stop()
        self._note_progress()

    def _note_progress(self) -> None:
        tally = self._context.tally
        for progress in self._query.recentProgress:
            if progress["batchId"] <= self._seen:
                continue
            self._seen = progress["batchId"]
            tally.batches += 1
            tally.read += progress["numInputRows"]
            observed = progress["observedMetrics"]
            tally.refused += observed[PARSED]["refused"] if PARSED in observed else 0
            tally.written += observed[WRITTEN]["rows"] if WRITTEN in observed else 0
            if time.monotonic() - self._said >= _PROGRESS_S:
                self._said = time.monotonic()
                self._say(self._line(progress))

    def _line(self, progress: dict[str, Any]) -> str:
        tally = self._context.tally
        speed = tally.read / max(time.monotonic() - self._began, 0.001)
        behind = (progress["sources"][0].get("metrics") or {}).get("maxOffsetsBehindLatest")
        left = f", up to {int(behind):,} behind per partition" if behind is not None else ""
        done = f"{tally.read:,} read ({speed:,.0f}/s), {tally.written:,} written"
        return f"{self._name}: batch {self._seen}, {done}{left}"

    def summary(self) -> Summary:
        """How it ended."""
        seconds = time.monotonic() - self._began
        return Summary(self._name, self._kind, self._context.tally, seconds, self._bounded, self._finished)


def _reason(error: Exception) -> str:
    """One line; of an exception of the JVM the innermost cause."""
    text = str(error) if isinstance(error, _FOR_USERS) else f"{type(error).__name__}: {error}"
    if isinstance(error, Py4JJavaError):
        text = str(innermost(error).toString())
    return text.strip().partition("\n")[0]


@contextlib.contextmanager
def stopped_by_signals(stop: threading.Event) -> Iterator[list[int]]:
    """SIGINT and SIGTERM set the event, and the second one has its usual effect; gives the signals that came."""
    came: list[int] = []

    def handle(number: int, _frame: Any) -> None:
        came.append(number)
        stop.set()
        signal.signal(number, signal.SIG_DFL)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
