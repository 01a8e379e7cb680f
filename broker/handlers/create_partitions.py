"""CreatePartitions: more partitions for a topic, by the controller.

Versions: 1 throttles by closing the tap; 2 is flexible; 3 adds THROTTLING_QUOTA_EXCEEDED.
"""

from __future__ import annotations

from pylogd.broker.cluster.forwarding import error_response, handle

__all__ = ["error_response", "handle"]
