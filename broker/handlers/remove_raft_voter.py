"""RemoveRaftVoter: a controller loses its vote in the metadata quorum; the quorum's leader decides."""

from __future__ import annotations

from pylogd.broker.cluster.forwarding import error_response, handle

__all__ = ["error_response", "handle"]
