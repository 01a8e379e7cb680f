"""Which cluster an unformatted node belongs to: that of the controllers it is told to use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pylogd.broker.peer import Peer, PeerError

if TYPE_CHECKING:
    from pylogd.runtime.network import Network

_CONTROLLERS = 2
_TIMEOUT_SECONDS = 2.0


async def cluster_id_of(network: Network, controllers: Sequence[tuple[str, int]]) -> str | None:
    """The cluster id that the first of the controllers to answer tells; None when none does."""
    from pylogd.protocol.messages.describe_cluster import DescribeClusterRequest

    for host, port in controllers:
        peer = Peer(network, host, port, client_id="joining", timeout_s=_TIMEOUT_SECONDS)
        try:
            answer = await peer.request(DescribeClusterRequest(endpoint_type=_CONTROLLERS))
        except PeerError:
            continue
        finally:
            peer.close()
        if not answer.error_code and answer.cluster_id:
            return str(answer.cluster_id)
    return None
