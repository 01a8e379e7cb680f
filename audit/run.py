"""The steps of an audit, wherever they are executed: survey the directories, check every replica, look closer where
replicas differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from pylogd.audit.compare import Block, Look, compare, judge, look, plan
from pylogd.audit.model import PartitionReport, Replica, Report, Task
from pylogd.audit.partition_check import check
from pylogd.audit.survey import NoDataDirectory, Survey, survey_or_reason

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Execute(Protocol):
    """Runs a function on every item and returns the answers in order; `size` is the work of an item in bytes, where
    that is known."""

    def __call__(
        self,
        step: str,
        function: Callable[[Item], Answer],
        items: Sequence[Item],
        size: Callable[[Item], int] | None = None,
    ) -> list[Answer]: ...


def here(
    step: str, function: Callable[[Item], Answer], items: Sequence[Item], size: Callable[[Item], int] | None = None
) -> list[Answer]:
    """In this process, one after another."""
    return [function(item) for item in items]


def audit(directories: Sequence[str], execute: Execute = here) -> Report:
    """Checks every partition in the data directories, and compares the replicas that several of them have of one.
    NoDataDirectory when a path is none."""
    surveys: list[Survey] = []
    for survey in execute("surveying directories", survey_or_reason, list(dict.fromkeys(directories))):
        if isinstance(survey, str):
            raise NoDataDirectory(survey)
        surveys.append(survey)
    compacted = {topic for each in surveys for topic in each.compacted}
    groups: dict[tuple[str, int], list[Replica]] = {}
    for replica in (replica for each in surveys for replica in each.replicas):
        groups.setdefault((replica.topic, replica.partition), []).append(replica)
    planned = {key: plan(replicas, key[0] in compacted) for key, replicas in groups.items()}

    # The largest first: the last tasks decide how long a cluster works.
    tasks = sorted((task for each in planned.values() for task in each), key=lambda task: -task.replica.size)
    checked = execute("checking partitions", check, tasks, lambda task: task.replica.size)
    by_path = {report.replica.path: report for report in checked}

    partitions = []
    differing: list[tuple[PartitionReport, Block, int]] = []
    for (topic, number), planned_tasks in sorted(planned.items()):
        reports = [by_path[task.replica.path] for task in planned_tasks]
        partition = PartitionReport(topic, number, reports)
        partition.compared, blocks = compare(reports, planned_tasks[0].cuts)
        partitions.append(partition)
        if blocks:
            differing.append((partition, blocks[0], len(blocks)))
    _look_closer(differing, planned, execute)
    found = {each.directory: each.findings for each in surveys if each.findings}
    return Report(partitions, found)


def _look_closer(
    differing: list[tuple[PartitionReport, Block, int]], planned: dict[tuple[str, int], list[Task]], execute: Execute
) -> None:
    looks = [
        Look(replica, planned[partition.topic, partition.partition][0].compacted, block.start, block.end)
        for partition, block, _ in differing
        for replica in block.replicas
    ]
    answers = iter(execute("comparing replicas that differ", look, looks) if looks else [])
    for partition, block, count in differing:
        judge(partition, block, [next(answers) for _ in block.replicas], count)
