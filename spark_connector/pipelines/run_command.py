"""`pylogd spark run FILE`: runs the pipelines that a TOML file declares.

Exit codes: 0 when all is done (or endless pipelines were stopped), 1 when a pipeline failed, 2 for a file or a command
line that cannot be used, 128 + signal number when a signal stopped a bounded pipeline before its end.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import threading
import time

from pylogd.spark_connector.pipelines.job_file import LoadError, load
from pylogd.spark_connector.pipelines.job_settings import Job, SettingError

# A result must not depend on the time zone of the machine, and a bar that rewrites its line not on a log's width.
DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def main(arguments: list[str]) -> int:
    """`pylogd spark run`; the exit code."""
    options = _parser().parse_args(arguments)
    try:
        job = _select(load(options.file, options.set), options.only, options.file)
    except LoadError as error:
        return _usage(str(error))
    if options.check:
        print(f"{options.file}: {len(job.pipelines)} pipelines: {', '.join(p.name for p in job.pipelines)}")
        return 0
    configuration = DEFAULTS | job.spark
    for setting in options.conf:
        name, separator, value = setting.partition("=")
        if not separator:
            return _usage(f"--conf {setting}: expected key=value")
        configuration[name] = value
    return _run(job, options.master, configuration)


def _run(job: Job, master: str | None, configuration: dict[str, str]) -> int:
    from pylogd.spark_connector import session
    from pylogd.spark_connector.pipelines.runner import PipelineError, run, stopped_by_signals

    stop = threading.Event()
    spark = session("pylogd", master=master, config=configuration)
    spark.sparkContext.setLogLevel("OFF")
    try:
        # After Spark, which takes SIGINT for itself when it starts.
        with stopped_by_signals(stop) as signals:
            summaries = run(job, spark, _say, stop)
    except SettingError as error:
        return _usage(str(error))
    except PipelineError as error:
        print(f"pylogd: {error}", file=sys.stderr)
        return 1
    finally:
        spark.stop()
    for summary in summaries:
        print(summary)
    unfinished = [summary for summary in summaries if not summary.finished]
    left = len(job.pipelines) - len(summaries)
    if left:
        print(f"{left} pipelines did not start; run the job again to go on")
    return 128 + signals[0] if signals and (left or any(each.bounded for each in unfinished)) else 0


def _select(job: Job, names: list[str], file: str) -> Job:
    known = [pipeline.name for pipeline in job.pipelines]
    for name in names:
        if name not in known:
            raise LoadError(f"{file}: --only {name}: expected one of {', '.join(known)}")
    chosen = [pipeline for pipeline in job.pipelines if not names or pipeline.name in names]
    return dataclasses.replace(job, pipelines=chosen)


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


def _usage(problem: str) -> int:
    print(f"pylogd: {problem}", file=sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pylogd spark run", description="Run the pipelines of a TOML file.")
    parser.add_argument("file", metavar="FILE", help="the TOML file")
    parser.add_argument("--only", metavar="NAME", action="append", default=[], help="run this one; may be repeated")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="override a dotted key")
    parser.add_argument("--master", metavar="URL", help="the Spark cluster (default: this machine)")
    parser.add_argument("--conf", metavar="KEY=VALUE", action="append", default=[], help="a Spark setting")
    parser.add_argument("--check", action="store_true", help="check the file and do nothing else")
    return parser
