"""What the quorum says about itself: DescribeQuorum, and DescribeCluster for those who talk to controllers directly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pylogd.controller.state import ControllerState, Decision
from pylogd.metadata.operations import CLUSTER_OPERATIONS
from pylogd.metadata.topic_names import CLUSTER_METADATA_TOPIC
from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.uuids import ZERO

if TYPE_CHECKING:
    from pylogd.controller.quorum.quorum_view import QuorumView
    from pylogd.controller.raft.leader import ReplicaStatus
    from pylogd.protocol.messages.describe_cluster import DescribeClusterRequest
    from pylogd.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse

BROKER_ENDPOINTS = 1
CONTROLLER_ENDPOINTS = 2


def describe_quorum(quorum: QuorumView, request: DescribeQuorumRequest, version: int) -> Decision:
    """Only the metadata partition has a quorum; for anything else, or more than it, the whole request is refused."""
    from pylogd.protocol.messages import describe_quorum as m

    wanted = [(topic.topic_name, p.partition_index) for topic in request.topics for p in topic.partitions]
    if wanted != [(CLUSTER_METADATA_TOPIC, 0)]:
        return Decision([], _unknown(request))
    replicas = quorum.replicas()
    if replicas is None:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        refused = m.ResponsePartitionData(partition_index=0, error_code=code, error_message=code.message)
        topics = [m.ResponseTopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[refused])]
        return Decision([], m.DescribeQuorumResponse(error_message=None, topics=topics))

    def states(rows: list[ReplicaStatus]) -> list[m.ReplicaState]:
        return [
            m.ReplicaState(
                replica_id=key.id,
                replica_directory_id=key.directory_id if version >= 2 else ZERO,
                log_end_offset=end_offset,
                last_fetch_timestamp=fetched_ms,
                last_caught_up_timestamp=caught_up_ms,
            )
            for key, _, end_offset, fetched_ms, caught_up_ms in rows
        ]

    voters, observers = replicas
    partition = m.ResponsePartitionData(
        partition_index=0,
        error_code=ErrorCode.NONE,
        error_message=None,
        leader_id=quorum.node_id,
        leader_epoch=quorum.epoch,
        high_watermark=quorum.committed_offset,
        current_voters=states(voters),
        observers=states(observers),
    )
    nodes = []
    if version >= 2:
        for key, endpoints, *_ in voters:
            listeners = [m.Listener(name=name, host=host, port=port) for name, (host, port) in endpoints.items()]
            nodes.append(m.Node(node_id=key.id, listeners=listeners))
    topic = m.ResponseTopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])
    return Decision([], m.DescribeQuorumResponse(error_message=None, topics=[topic], nodes=nodes))


def _unknown(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    from pylogd.protocol.messages import describe_quorum as m

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return m.DescribeQuorumResponse(
        error_message=None,
        topics=[
            m.ResponseTopicData(
                topic_name=topic.topic_name,
                partitions=[
                    m.ResponsePartitionData(
                        partition_index=p.partition_index, error_code=code, error_message=code.message
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def describe_cluster(
    quorum: QuorumView, state: ControllerState, request: DescribeClusterRequest, version: int, listener: str
) -> Decision:
    """The registered controllers, as seen on the listener that was asked."""
    from pylogd.protocol.messages import describe_cluster as m

    wanted = request.endpoint_type if version >= 1 else BROKER_ENDPOINTS
    if wanted != CONTROLLER_ENDPOINTS:
        code, text = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {wanted}"
        if wanted == BROKER_ENDPOINTS:
            code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
            text = "The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of type BROKER"
        if version == 0:
            code = ErrorCode.INVALID_REQUEST
        return Decision([], m.DescribeClusterResponse(error_code=code, error_message=text))
    leader_id = -1 if quorum.leader_id is None else quorum.leader_id
    response = m.DescribeClusterResponse(
        endpoint_type=CONTROLLER_ENDPOINTS, cluster_id=state.settings.cluster_id, controller_id=leader_id
    )
    for record in state.image.controllers.values():
        for endpoint in record.end_points:
            if endpoint.name == listener:
                response.brokers.append(
                    m.DescribeClusterBroker(
                        broker_id=record.controller_id, host=endpoint.host, port=endpoint.port, rack=None
                    )
                )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return Decision([], response)
