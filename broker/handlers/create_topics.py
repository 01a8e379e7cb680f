"""CreateTopics: new topics with their configs, by the controller.

Versions: 2 is the first Kafka 4 serves; 3 throttles after the response; 4 takes the broker's defaults for -1 partitions
and replicas; 5 is flexible and returns the topic's configs; 6 adds THROTTLING_QUOTA_EXCEEDED; 7 topic ids.
"""

from __future__ import annotations

from pylogd.broker.cluster.forwarding import handle

__all__ = ["handle"]
