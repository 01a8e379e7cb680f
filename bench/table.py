"""Rows of the result and the table they are printed as."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(slots=True)
class Row:
    """One measured quantity of both brokers. `aim` bounds the ratio pylogd : baseline, from below or from above."""

    group: str
    name: str
    unit: str
    kafka: float | None
    pylogd: float | None
    at_least: float | None = None
    at_most: float | None = None
    # A bound on pylogd's own figure instead of the ratio (idle memory).
    at_most_absolute: float | None = None
    # What stands in the first column of figures where it is not Kafka (a bare loop).
    baseline: str = "Kafka"
    note: str = ""

    @property
    def ratio(self) -> float | None:
        if not self.kafka or self.pylogd is None:
            return None
        return self.pylogd / self.kafka

    @property
    def aim(self) -> str:
        if self.at_least is not None:
            return f">= {self.at_least:g}x"
        if self.at_most is not None:
            return f"<= {self.at_most:g}x"
        if self.at_most_absolute is not None:
            return f"<= {self.at_most_absolute:g} {self.unit}"
        return ""

    @property
    def reached(self) -> str:
        if not self.aim or self.pylogd is None:
            return ""
        if self.at_most_absolute is not None:
            return "yes" if self.pylogd <= self.at_most_absolute else "NO"
        if self.ratio is None:
            return ""
        if self.at_least is not None:
            return "yes" if self.ratio >= self.at_least else "NO"
        assert self.at_most is not None
        return "yes" if self.ratio <= self.at_most else "NO"

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio, "aim": self.aim, "reached": self.reached}


def figure(value: float | None) -> str:
    """Three significant digits, without an exponent."""
    if value is None:
        return "-"
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 1 else f"{value:.3g}"


HEADINGS = ("row", "unit", "Kafka", "pylogd", "ratio", "aim", "reached")


def cells(row: Row) -> tuple[str, ...]:
    name = row.name if row.baseline == "Kafka" else f"{row.name} (beside {row.baseline})"
    ratio = "-" if row.ratio is None else f"{row.ratio:.2f}x"
    return (f"{row.group}: {name}", row.unit, figure(row.kafka), figure(row.pylogd), ratio, row.aim, row.reached)


def markdown(rows: list[Row]) -> str:
    lines = [cells(row) for row in rows]
    widths = [max(len(line[column]) for line in [HEADINGS, *lines]) for column in range(len(HEADINGS))]

    def render(line: tuple[str, ...]) -> str:
        padded = [
            text.ljust(width) if column in (0, 1, 5, 6) else text.rjust(width)
            for column, (text, width) in enumerate(zip(line, widths))
        ]
        return "| " + " | ".join(padded) + " |"

    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    notes = [f"- {row.group}: {row.name}: {row.note}" for row in rows if row.note]
    return "\n".join([render(HEADINGS), rule, *map(render, lines), *(["", *notes] if notes else [])])
