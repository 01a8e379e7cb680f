"""FindCoordinator: which broker coordinates a group, a transactional id or a share partition.

Versions: 1 added the key type (groups, transactions), error message and throttle time; 3 flexible; 4 many keys in one
request; 5 TRANSACTION_ABORTABLE; 6 share groups.

The coordinator is the leader of the key's partition of an internal topic. The first request creates that topic, and its
client is told to ask again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pylogd.broker.network.client_endpoints import alive_broker_address
from pylogd.coordinators.shard.key_placement import partition_for
from pylogd.metadata.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from pylogd.protocol import uuids
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from pylogd.broker.network.context import RequestContext

GROUP = 0
TRANSACTION = 1
SHARE = 2
NO_NODE = -1
#: The topic whose partition leaders coordinate, by key type.
TOPICS = {GROUP: OFFSETS_TOPIC, TRANSACTION: TRANSACTIONS_TOPIC}


class Found(NamedTuple):
    code: ErrorCode
    node_id: int = NO_NODE
    host: str = ""
    port: int = -1


def handle(ctx: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    key_type = request.key_type if ctx.version >= 1 else GROUP
    if ctx.version < 4:
        found = _find(ctx, key_type, request.key)
        return FindCoordinatorResponse(
            error_code=found.code,
            error_message=found.code.message,
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )
    return FindCoordinatorResponse(
        coordinators=[_coordinator(key, _find(ctx, key_type, key)) for key in request.coordinator_keys]
    )


def _coordinator(key: str, found: Found) -> Coordinator:
    return Coordinator(
        key=key, node_id=found.node_id, host=found.host, port=found.port, error_code=found.code, error_message=""
    )


def _find(ctx: RequestContext, key_type: int, key: str) -> Found:
    if key_type not in (GROUP, TRANSACTION, SHARE):
        return Found(ErrorCode.INVALID_REQUEST)
    if key_type == SHARE:
        valid = ctx.version >= 6 and _is_share_key(key)
        return Found(ErrorCode.COORDINATOR_NOT_AVAILABLE if valid else ErrorCode.INVALID_REQUEST)
    name = TOPICS[key_type]
    topic = ctx.services.image.topics.get(name)
    if topic is None or not topic.partitions:
        ctx.services.topic_creation.create([name], None)
        return Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    leader = topic.partitions[partition_for(key, len(topic.partitions))].leader
    address = alive_broker_address(ctx, leader)
    if address is None:
        return Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return Found(ErrorCode.NONE, leader, *address)


def _is_share_key(key: str) -> bool:
    """`group:topic id:partition`; the group may hold colons itself."""
    parts = key.rsplit(":", 2)
    if len(parts) != 3 or not parts[0] or not parts[2].lstrip("-").isdigit():
        return False
    try:
        uuids.from_text(parts[1])
    except ValueError:
        return False
    return True
