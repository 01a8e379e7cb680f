"""DescribeQuorum: leader, voters and observers of the metadata log, by the controller.

Versions: 1 adds the times of each replica's last fetch and of when it was caught up; 2 directory ids, endpoints and
error messages.
"""

from __future__ import annotations

from pylogd.broker.cluster.forwarding import handle

__all__ = ["handle"]
