"""ElectLeaders: preferred or unclean leader elections, by the controller.

Versions: 1 adds the election type and an error for the whole request; 2 is flexible.
"""

from __future__ import annotations

from pylogd.broker.cluster.forwarding import handle

__all__ = ["handle"]
