"""Which assignors a broker offers: those that group.consumer.assignors names and that are built in."""

from __future__ import annotations

import logging

from pylogd.coordinators.groups.consumer.assignors.assignor import Assignor
from pylogd.coordinators.groups.consumer.assignors.range_assignor import assign_range
from pylogd.coordinators.groups.consumer.assignors.uniform_assignor import assign_uniform

logger = logging.getLogger(__name__)
_KAFKA_CLASSES = "org.apache.kafka.coordinator.group.assignor."


def offered_assignors(configured: list[str]) -> dict[str, Assignor]:
    """Assignors by name, the default first: built-in ones, by their own names or those of Kafka's classes. Others are
    Java classes, which cannot be loaded here."""
    known: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
    found = {}
    for name in configured:
        short = name.removeprefix(_KAFKA_CLASSES).removesuffix("Assignor").lower()
        if short in known:
            found[short] = known[short]
        else:
            logger.warning("group.consumer.assignors: %s is not built in and is left out", name)
    return found or known
