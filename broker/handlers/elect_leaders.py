"""ElectLeaders: preferred or unclean leader elections, by the controller.

Versions: 1 adds the election type and an error for the whole request; 2 is flexible.
"""

from __future__ import annotations

from pylogd.broker.cluster.forwarding import error_response, handle

__all__ = ["error_response", "handle"]
