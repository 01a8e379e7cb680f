"""RemoveRaftVoter: a controller loses its vote in the metadata quorum; the quorum's leader decides."""

from __future__ import annotations

from pylogd.broker.cluster.forwarding import handle

__all__ = ["handle"]
