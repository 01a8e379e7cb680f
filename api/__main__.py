"""The `pylogd` command, also as `python -m pylogd`: the broker's command line and, imported on demand, Spark's."""

from __future__ import annotations

from typing import NoReturn

from pylogd.broker import main as broker


def main() -> NoReturn:
    broker.main(others={"spark": ("run Spark jobs and pipelines on topics", _spark)})


def _spark(arguments: list[str]) -> int:
    from pylogd.spark_connector.command import main

    return main(arguments)


if __name__ == "__main__":
    main()
