"""`pylogd spark audit DIR...`: the audit of data directories, spread over a Spark cluster, one task per replica.

Every executor must see every DIR under the same path (shared storage, a mounted snapshot, or a local master), and have
pylogd installed. Only requests, findings and digests travel.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from pylogd.audit import Report, audit
from pylogd.audit.audit_command import finish, parser
from pylogd.audit.progress import Progress
from pylogd.audit.run import Answer, Item

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Beyond this many tasks Spark's own bookkeeping costs more than it helps.
TASKS_MAX = 10_000
_POLL_S = 0.5


def run(spark: SparkSession, directories: Sequence[str]) -> Report:
    """The report of `pylogd.audit.audit`, from a running Spark session."""
    return audit(directories, SparkExecute(spark))


class SparkExecute:
    """Runs the steps of an audit as Spark jobs, with progress lines; see `pylogd.audit.run.Execute`."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext

    def __call__(
        self,
        step: str,
        function: Callable[[Item], Answer],
        items: Sequence[Item],
        size: Callable[[Item], int] | None = None,
    ) -> list[Answer]:
        if not items:
            return []
        context = self._context
        context.setJobDescription(f"pylogd audit: {step}")
        done, done_bytes = context.accumulator(0), context.accumulator(0)
        sizes = [size(item) if size else 0 for item in items]
        tasks = min(len(items), TASKS_MAX)
        # Dealt out like cards: the items come with the largest first, and no task may get all of those.
        numbered = list(zip(range(len(items)), items, sizes))
        hands = [numbered[first::tasks] for first in range(tasks)]

        def work(hand: list[tuple[int, Item, int]]) -> Iterator[tuple[int, Answer]]:
            for number, item, item_bytes in hand:
                yield number, function(item)
                done.add(1)
                done_bytes.add(item_bytes)

        progress = Progress(step, len(items), sum(sizes))
        finished = threading.Event()

        def report() -> None:
            while not finished.wait(_POLL_S):
                progress.at(done.value, done_bytes.value)

        reporter = threading.Thread(target=report, name="audit progress", daemon=True)
        reporter.start()
        try:
            answers = dict(context.parallelize(hands, tasks).flatMap(work).collect())
        finally:
            finished.set()
            reporter.join()
        return [answers[number] for number in range(len(items))]


def main(arguments: list[str]) -> int:
    """`pylogd spark audit`; the exit code."""
    from pylogd.spark_connector.sessions import session

    options_parser = parser("pylogd spark audit")
    options_parser.add_argument("--master", metavar="URL", help="the Spark cluster (default: Spark's own, local[*])")
    options_parser.add_argument(
        "--conf", metavar="KEY=VALUE", action="append", default=[], help="a Spark setting; may be repeated"
    )
    options = options_parser.parse_args(arguments)
    settings = dict(setting.partition("=")[::2] for setting in options.conf)
    # It ends with the process, or belongs to the program that had one running before.
    spark = session("pylogd audit", master=options.master, config=settings)
    return finish(options, lambda: run(spark, options.directories), "pylogd spark audit")
