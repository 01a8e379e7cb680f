"""One file per group of rows. Each has `measure(bench) -> list[Row]`; add its name to GROUPS in `bench/__main__.py`."""

from __future__ import annotations


def of(figures: dict[str, dict[str, float]], kind: str, name: str) -> float | None:
    """One figure of one broker, if that broker ran."""
    return figures.get(kind, {}).get(name)
