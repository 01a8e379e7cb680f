"""UpdateFeatures: raising or lowering the finalized level of features, by the controller.

Versions: 1 replaces "allow downgrade" by the upgrade type and adds validate-only; 2 answers for the whole request, not
feature by feature.
"""

from __future__ import annotations

from pylogd.broker.cluster.forwarding import handle

__all__ = ["handle"]
