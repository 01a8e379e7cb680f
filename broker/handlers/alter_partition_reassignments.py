"""AlterPartitionReassignments: moves replicas, or cancels a move, by the controller.

Versions: 1 can forbid a change of the replication factor.
"""

from __future__ import annotations

from pylogd.broker.cluster.forwarding import handle

__all__ = ["handle"]
