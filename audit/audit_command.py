"""`pylogd audit DIR...`: the audit in this process. Exit code 0: nothing wrong, 1: findings, 2: a bad command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from pylogd.audit.model import Report
from pylogd.audit.progress import Progress
from pylogd.audit.report_output import write_json_lines, write_table
from pylogd.audit.run import Answer, Item, audit
from pylogd.audit.survey import NoDataDirectory

EPILOG = """\
DIR is one of log.dirs. Several are read as the replicas of one cluster, and compared up to their high watermarks.
Nothing is written, and a broker may run: then its last segments are read as far as they are whole.
"""


def parser(prog: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog=prog,
        description="Check the files of data directories and compare replicas, without a broker.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("directories", nargs="+", metavar="DIR")
    made.add_argument("--json", metavar="FILE", help="also write the report as JSON lines to FILE (- for stdout alone)")
    return made


def main(arguments: list[str]) -> int:
    options = parser("pylogd audit").parse_args(arguments)
    return finish(options, lambda: audit(options.directories, execute_here), "pylogd audit")


def finish(options: argparse.Namespace, run: Callable[[], Report], prog: str) -> int:
    """Runs the audit, writes the report, and gives the exit code."""
    try:
        report = run()
    except NoDataDirectory as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 2
    if options.json == "-":
        write_json_lines(report, sys.stdout)
    else:
        if options.json:
            with open(options.json, "w", encoding="utf-8") as out:
                write_json_lines(report, out)
        write_table(report, sys.stdout)
    return 0 if report.clean else 1


def execute_here(
    step: str, function: Callable[[Item], Answer], items: Sequence[Item], size: Callable[[Item], int] | None = None
) -> list[Answer]:
    progress = Progress(step, len(items), sum(map(size, items)) if size else 0)
    answers = []
    done_bytes = 0
    for item in items:
        answers.append(function(item))
        done_bytes += size(item) if size else 0
        progress.at(len(answers), done_bytes)
    return answers
