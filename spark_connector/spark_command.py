"""`pylogd spark COMMAND`: each command is a module with `main(arguments) -> exit code`, imported when it is called."""

from __future__ import annotations

import importlib
import sys

from pylogd.spark_connector.setup_errors import SetupError

COMMANDS = {
    "run": ("pylogd.spark_connector.pipelines.run_command", "run the pipelines that a TOML file declares"),
    "audit": ("pylogd.spark_connector.audit", "check the files of data directories and compare replicas"),
    "submit": ("pylogd.spark_connector.submit", "run a Spark job with the Kafka source that matches"),
}


def main(arguments: list[str]) -> int:
    """`pylogd spark`; the exit code."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_usage(), file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    name, *rest = arguments
    if name not in COMMANDS:
        print(f"pylogd spark: {name}: no such command\n{_usage()}", file=sys.stderr)
        return 2
    try:
        code: int = importlib.import_module(COMMANDS[name][0]).main(rest)
    except SetupError as error:
        print(f"pylogd spark: {error}", file=sys.stderr)
        return 1
    return code


def _usage() -> str:
    lines = [f"  {name:<10}{text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join(["usage: pylogd spark COMMAND ...", "", *lines])
