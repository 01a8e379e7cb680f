"""AddRaftVoter: one more controller gets a vote in the metadata quorum; the quorum's leader decides.

Versions: 1 can be answered when the change is appended, not when it is committed.
"""

from __future__ import annotations

from pylogd.broker.cluster.forwarding import handle

__all__ = ["handle"]
