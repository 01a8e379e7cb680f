"""The report as a table for people and as JSON lines for machines: one object per partition, then a summary."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TextIO

from pylogd.audit.model import Report

_COLUMNS = ("PARTITION", "NODE", "SEGMENTS", "BATCHES", "BYTES", "START", "END", "WATERMARK", "COMPARED", "RESULT")


def write_table(report: Report, out: TextIO) -> None:
    rows = [list(_COLUMNS), *_rows(report)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    for row in rows:
        out.write("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() + "\n")
    if report.findings:
        out.write("\n")
    for where, finding in report.findings:
        place = f"{where}/{finding.file}" if finding.file else where
        at = "" if finding.offset is None else f" (offset {finding.offset})"
        out.write(f"{finding.kind}: {place}{at}: {finding.message}\n")
    out.write(f"\n{summary(report)}\n")


def _rows(report: Report) -> Iterator[list[str]]:
    for partition in report.partitions:
        compared = "-" if partition.compared is None else f"{partition.compared[0]}..{partition.compared[1]}"
        for each in partition.replicas:
            mark = each.replica.high_watermark
            count = len(each.findings) + each.more
            result = f"{count} found" if count else "differs" if partition.findings else "ok"
            numbers = (each.segments, each.batches, each.size, each.start, each.end, "-" if mark is None else mark)
            yield [partition.name, each.replica.node, *map(str, numbers), compared, result]


def summary(report: Report) -> str:
    replicas = sum(len(partition.replicas) for partition in report.partitions)
    what = f"{len(report.partitions)} partitions, {replicas} replicas, {report.size} bytes"
    count = len(report.findings) + sum(each.more for partition in report.partitions for each in partition.replicas)
    return f"{what}: {f'{count} findings' if count else 'nothing wrong'}"


def write_json_lines(report: Report, out: TextIO) -> None:
    for partition in report.partitions:
        out.write(json.dumps(partition.to_json()) + "\n")
    directories = {path: [asdict(finding) for finding in findings] for path, findings in report.directories.items()}
    total = {"partitions": len(report.partitions), "bytes": report.size, "findings": len(report.findings)}
    out.write(json.dumps({"summary": total, "clean": report.clean, "directories": directories}) + "\n")
