"""Which cluster an unformatted node belongs to, without a format step by hand and without a hole.

Somebody among the listed controllers (`controller.quorum.bootstrap.servers`) tells: a node that has no directories yet
asks all of them. If one belongs to a cluster, that is the cluster to join. A new cluster is founded only when every
listed controller is there and says that it has none either, and then by the one with the lowest id alone; the others
join it a moment later. While anybody is silent nobody founds anything: the silent one may hold the cluster's metadata.

A controller that joins is an observer at first, with a directory id that the quorum has never seen, and then asks to
vote. So a voter whose disk was wiped comes back as a stranger and cannot vote twice in an epoch it does not remember.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from pylogd.protocol.api import ApiKey
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.failures import error_response
from pylogd.rpc.peer import Peer, PeerError

if TYPE_CHECKING:
    from pylogd.controller.served_apis import ControllerContext
    from pylogd.protocol.schema import Message
    from pylogd.runtime.network import Network

logger = logging.getLogger(__name__)

_CONTROLLERS = 2
#: Those that do not answer get more time in every round: they may be there on a machine that is overloaded.
_TIMEOUT_S, _TIMEOUT_S_MAX = 2.0, 8.0
_RETRY_S = 0.25
#: Rounds between two lines that say what is waited for.
_ROUNDS_PER_LINE = 40

Address = tuple[str, int]


class Unformatted:
    """Stands in for the controller of a node that has none yet: says so, and refuses everything else."""

    active = False

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id

    async def handle(self, request: Message, version: int, context: ControllerContext) -> Message:
        from pylogd.protocol.messages import describe_cluster as m

        if request.API_KEY != ApiKey.DESCRIBE_CLUSTER:
            text = "This node does not belong to a cluster yet."
            refusal: Message = error_response(request, version, ErrorCode.NOT_CONTROLLER, text)
            return refusal
        myself = m.DescribeClusterBroker(broker_id=self._node_id)
        return m.DescribeClusterResponse(endpoint_type=_CONTROLLERS, cluster_id="", controller_id=-1, brokers=[myself])


class Answer(NamedTuple):
    """What a listed controller says of itself. The id counts only while it has no cluster."""

    cluster_id: str
    node_id: int


async def ask(network: Network, address: Address, timeout_s: float = _TIMEOUT_S) -> Answer | None:
    """None when nobody answers there."""
    from pylogd.protocol.messages.describe_cluster import DescribeClusterRequest

    peer = Peer(network, *address, client_id="joining", timeout_s=timeout_s)
    try:
        told = await peer.request(DescribeClusterRequest(endpoint_type=_CONTROLLERS))
    except PeerError:
        return None
    finally:
        peer.close()
    if told.error_code:
        return None
    return Answer(told.cluster_id, told.brokers[0].broker_id if told.brokers else -1)


def decide(node_id: int, answers: Sequence[Answer | None]) -> str | None:
    """The cluster to join, "" to found a new one, None to wait. The answers are those of all listed controllers; this
    node's own is among them if it is listed."""
    known = [answer for answer in answers if answer is not None]
    for answer in known:
        if answer.cluster_id:
            return answer.cluster_id
    if len(known) < len(answers):
        return None
    ids = [answer.node_id for answer in known]
    return "" if ids and min(ids) == node_id and len(set(ids)) == len(ids) else None


async def find_cluster(network: Network, node_id: int, controllers: Sequence[Address]) -> str:
    """Waits until it is clear which cluster this node belongs to; "" when it is the one to found it."""
    rounds = 0
    while True:
        timeout_s = min(_TIMEOUT_S * (1 + rounds), _TIMEOUT_S_MAX)
        answers = await asyncio.gather(*(ask(network, address, timeout_s) for address in controllers))
        found = decide(node_id, answers)
        if found is not None:
            return found
        if rounds % _ROUNDS_PER_LINE == 0:
            logger.info("%s", _waiting_for(controllers, answers))
        rounds += 1
        await asyncio.sleep(_RETRY_S)


def _waiting_for(controllers: Sequence[Address], answers: Sequence[Answer | None]) -> str:
    silent = [f"{host}:{port}" for (host, port), answer in zip(controllers, answers) if answer is None]
    if silent:
        return (
            f"not formatted: waiting for the controllers at {', '.join(silent)}; a new cluster is founded only when "
            "all listed controllers are there and none belongs to one (or by `pylogd format`)"
        )
    ids = [answer.node_id for answer in answers if answer is not None]
    if len(set(ids)) < len(ids):
        return f"not formatted: listed controllers share a node.id ({sorted(ids)}), so nobody can found the cluster"
    return f"not formatted: waiting for node {min(ids)} to found the cluster"
