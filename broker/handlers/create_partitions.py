"""CreatePartitions: more partitions for a topic, by the controller.

Versions: 1 throttles after the response; 2 is flexible; 3 adds THROTTLING_QUOTA_EXCEEDED.
"""

from __future__ import annotations

from pylogd.broker.cluster.forwarding import handle

__all__ = ["handle"]
