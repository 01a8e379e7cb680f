"""FindCoordinator: which broker coordinates a group, a transactional id or a share partition.

Versions: 1 added the key type (groups, transactions), error message and throttle time; 3 flexible; 4 many keys in one
request; 5 TRANSACTION_ABORTABLE; 6 share groups.

This broker does not run coordinators yet, so it answers like a Kafka whose coordinator is not up: the client asks
again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pylogd.protocol import uuids
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from pylogd.broker.dispatch import RequestContext

GROUP = 0
TRANSACTION = 1
SHARE = 2
NO_NODE = -1


def handle(ctx: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    key_type = request.key_type if ctx.version >= 1 else GROUP
    keys = request.coordinator_keys if ctx.version >= 4 else [request.key]
    codes = [_code(ctx.version, key_type, key) for key in keys]
    if ctx.version < 4:
        return FindCoordinatorResponse(
            error_code=codes[0], error_message=codes[0].message, node_id=NO_NODE, host="", port=-1
        )
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=NO_NODE, host="", port=-1, error_code=code, error_message="")
            for key, code in zip(keys, codes)
        ]
    )


def _code(version: int, key_type: int, key: str) -> ErrorCode:
    if key_type not in (GROUP, TRANSACTION, SHARE):
        return ErrorCode.INVALID_REQUEST
    if key_type == SHARE and (version < 6 or not _is_share_key(key)):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.COORDINATOR_NOT_AVAILABLE


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
