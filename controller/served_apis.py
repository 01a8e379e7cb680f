"""What a controller answers: the APIs, their versions, and the decision behind each."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, NamedTuple

from pylogd.controller.decide import (
    brokers,
    configs,
    directories,
    elections,
    features,
    isr_proposals,
    producer_id_blocks,
    quorum_description,
    reassignments,
    topics,
)
from pylogd.controller.state import ControllerState, Decision
from pylogd.protocol.api import ApiKey
from pylogd.rpc.caller import Caller

if TYPE_CHECKING:
    from pylogd.controller.quorum.driver import QuorumDriver

#: What the controller answers its own broker and on its listener, by first and last version.
SERVED: dict[ApiKey, tuple[int, int]] = {
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.DELETE_TOPICS: (1, 6),
    ApiKey.CREATE_PARTITIONS: (0, 3),
    ApiKey.ALTER_CONFIGS: (0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ApiKey.ELECT_LEADERS: (0, 2),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
    ApiKey.UPDATE_FEATURES: (0, 2),
    ApiKey.ALTER_PARTITION: (2, 3),
    ApiKey.BROKER_REGISTRATION: (0, 4),
    ApiKey.BROKER_HEARTBEAT: (0, 2),
    ApiKey.UNREGISTER_BROKER: (0, 0),
    ApiKey.CONTROLLER_REGISTRATION: (0, 0),
    ApiKey.ALLOCATE_PRODUCER_IDS: (0, 0),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: (0, 0),
    ApiKey.DESCRIBE_QUORUM: (0, 2),
    ApiKey.DESCRIBE_CLUSTER: (0, 2),
    ApiKey.VOTE: (0, 2),
    ApiKey.BEGIN_QUORUM_EPOCH: (0, 1),
    ApiKey.END_QUORUM_EPOCH: (0, 1),
    ApiKey.FETCH: (4, 18),
    ApiKey.FETCH_SNAPSHOT: (0, 1),
    ApiKey.ADD_RAFT_VOTER: (0, 1),
    ApiKey.REMOVE_RAFT_VOTER: (0, 0),
    ApiKey.UPDATE_RAFT_VOTER: (0, 0),
}
#: Answered by the quorum itself, whoever leads.
QUORUM_APIS = frozenset(
    {
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.FETCH,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
        ApiKey.UPDATE_RAFT_VOTER,
    }
)
#: Answered by every controller from what it knows.
STANDBY_APIS = frozenset({ApiKey.DESCRIBE_QUORUM, ApiKey.DESCRIBE_CLUSTER})

#: A broker that asks the controller of its own process.
NOBODY = Caller()


class ControllerContext:
    """Who asks. A request that a broker passes on for a client is `forwarded`, and the caller is the client;
    `connection` stands for what carried the request, if the end of that would mean something."""

    __slots__ = ("caller", "connection", "forwarded")

    def __init__(self, caller: Caller = NOBODY, *, forwarded: bool = False, connection: Hashable | None = None) -> None:
        self.caller = caller
        self.forwarded = forwarded
        self.connection = connection


class Asked(NamedTuple):
    """A request, and what there is to decide on it. The time is monotonic."""

    state: ControllerState
    driver: QuorumDriver
    request: Any
    version: int
    context: ControllerContext
    now_ms: int


#: All but the quorum's own, and heartbeats, which are more than a decision.
DECISIONS: dict[ApiKey, Callable[[Asked], Decision]] = {
    ApiKey.CREATE_TOPICS: lambda a: topics.create_topics(a.state, a.request, a.version),
    ApiKey.DELETE_TOPICS: lambda a: topics.delete_topics(a.state, a.request, a.version),
    ApiKey.CREATE_PARTITIONS: lambda a: topics.create_partitions(a.state, a.request),
    ApiKey.ALTER_CONFIGS: lambda a: configs.alter_configs(a.state, a.request, a.context.forwarded),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda a: configs.incremental_alter_configs(
        a.state, a.request, a.context.forwarded
    ),
    ApiKey.ELECT_LEADERS: lambda a: elections.elect_leaders(a.state, a.request, a.version),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda a: reassignments.alter_partition_reassignments(
        a.state, a.request, a.version
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: lambda a: reassignments.list_partition_reassignments(a.state, a.request),
    ApiKey.UPDATE_FEATURES: lambda a: features.update_features(a.state, a.request, a.version),
    ApiKey.ALTER_PARTITION: lambda a: isr_proposals.alter_partition(a.state, a.request, a.version),
    ApiKey.BROKER_REGISTRATION: lambda a: brokers.register_broker(a.state, a.request, a.version, a.now_ms),
    ApiKey.UNREGISTER_BROKER: lambda a: brokers.unregister_broker(a.state, a.request),
    ApiKey.CONTROLLER_REGISTRATION: lambda a: brokers.register_controller(a.state, a.request),
    ApiKey.ALLOCATE_PRODUCER_IDS: lambda a: producer_id_blocks.allocate_producer_ids(a.state, a.request),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: lambda a: directories.assign_replicas_to_dirs(a.state, a.request),
    ApiKey.DESCRIBE_QUORUM: lambda a: quorum_description.describe_quorum(a.driver, a.request, a.version),
    ApiKey.DESCRIBE_CLUSTER: lambda a: quorum_description.describe_cluster(
        a.driver, a.state, a.request, a.version, a.context.caller.listener
    ),
}
