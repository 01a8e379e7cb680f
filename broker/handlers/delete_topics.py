"""DeleteTopics: topics go, with their data, by the controller.

Versions: 1 is the first Kafka 4 serves; 3 adds TOPIC_DELETION_DISABLED; 4 is flexible; 5 adds error messages and
THROTTLING_QUOTA_EXCEEDED; 6 topics by id.
"""

from __future__ import annotations

from pylogd.broker.cluster.forwarding import handle

__all__ = ["handle"]
