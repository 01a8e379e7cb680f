"""Assignors: from members, what they subscribe to and what they have, to what each shall have.

Pure functions of their arguments, with Kafka's results (see `java_order`). They are handed assignments that they never
change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

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


def copied(assignment: Assignment) -> dict[bytes, set[int]]:
    return {topic_id: set(partitions) for topic_id, partitions in assignment.items()}
