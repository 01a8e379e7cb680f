"""ListPartitionReassignments: the moves under way, by the controller. Version 0."""

from __future__ import annotations

from pylogd.broker.cluster.forwarding import handle

__all__ = ["handle"]
