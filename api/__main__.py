"""The `pylogd` command, also as `python -m pylogd`: the broker's command line and, imported on demand, the audit's
and Spark's."""

from __future__ import annotations

from typing import NoReturn

from pylogd.cli import main as broker


def main() -> NoReturn:
    broker.main(
        others={
            "audit": ("check the files of data directories and compare replicas", _audit),
            "spark": ("run Spark jobs and pipelines on topics", _spark),
        }
    )


def _audit(arguments: list[str]) -> int:
    from pylogd.audit.audit_command import main

    return main(arguments)


def _spark(arguments: list[str]) -> int:
    from pylogd.spark_connector.spark_command import main

    return main(arguments)


if __name__ == "__main__":
    main()
