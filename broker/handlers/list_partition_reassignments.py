"""ListPartitionReassignments: the moves under way, by the controller. Version 0."""

from __future__ import annotations

from pylogd.broker.cluster.forwarding import error_response, handle

__all__ = ["error_response", "handle"]
