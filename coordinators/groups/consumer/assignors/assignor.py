"""Assignors: from members, what they subscribe to and what they have, to what each shall have.

Pure functions of their arguments, with Kafka's results (see `order`). They are handed assignments that they never
change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

logger = logging.getLogger(__name__)
_KAFKA_CLASSES = "org.apache.kafka.coordinator.group.assignor."

#: topic id -> partitions
Assignment = Mapping[bytes, "set[int] | frozenset[int]"]
#: member id -> its new assignment
GroupAssignment = dict[str, dict[bytes, set[int]]]


class MemberSpec(NamedTuple):
    """A member as an assignor sees it. `topics` are the ids of those subscribed topics that exist, `wide` how many
    names it subscribes to, existing or not."""

    instance_id: str | None
    topics: tuple[bytes, ...]
    assignment: Assignment
    wide: int = 0


class GroupSpec(NamedTuple):
    """`same` says that all members subscribe to the same topics, `partitions` how many each topic has."""

    members: Mapping[str, MemberSpec]
    same: bool
    partitions: Mapping[bytes, int]


Assignor = Callable[[GroupSpec], GroupAssignment]


def offered(configured: list[str]) -> dict[str, Assignor]:
    """Assignors by name, the default first: built-in ones, by their own names or those of Kafka's classes. Others are
    Java classes, which cannot be loaded here."""
    from pylogd.coordinators.groups.consumer.assignors.range_assignor import assign_range
    from pylogd.coordinators.groups.consumer.assignors.uniform_assignor import assign_uniform

    known: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
    found = {}
    for name in configured:
        short = name.removeprefix(_KAFKA_CLASSES).removesuffix("Assignor").lower()
        if short in known:
            found[short] = known[short]
        else:
            logger.warning("group.consumer.assignors: %s is not built in and is left out", name)
    return found or known


def copied(assignment: Assignment) -> dict[bytes, set[int]]:
    return {topic_id: set(partitions) for topic_id, partitions in assignment.items()}
