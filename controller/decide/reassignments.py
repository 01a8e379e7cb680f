"""Moving replicas: AlterPartitionReassignments and ListPartitionReassignments.

A move goes through a state in which the partition has the old and the new replicas; it completes (in
`partition_change`) when the new ones are in sync. No replicas given means: undo the move in progress.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pylogd.controller.decide.partition_change import PartitionChange
from pylogd.controller.decide.topics import check_assignment
from pylogd.controller.state import ControllerState, Decision, client_message
from pylogd.metadata.record_batches import VersionedRecord
from pylogd.metadata.registrations import Partition, Topic
from pylogd.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from pylogd.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
    from pylogd.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest


def _cancel(state: ControllerState, topic: Topic, index: int, partition: Partition) -> VersionedRecord | None:
    if not partition.is_reassigning():
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    replicas = [replica for replica in partition.replicas if replica not in partition.adding]
    isr = [replica for replica in partition.isr if replica not in partition.adding]
    if not replicas:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Invalid replica assignment: addingReplicas contains all replicas.",
        )
    if not isr:
        if not state.unclean_election_enabled(topic.name):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {topic.name}:{index} because it would require an "
                "unclean leader election.",
            )
        isr = [replicas[0]]
    change = PartitionChange(state, topic.name, topic.id, index, partition)
    change.isr, change.replicas, change.removing, change.adding = isr, replicas, [], []
    return change.build()


def _move(
    state: ControllerState, topic: Topic, index: int, partition: Partition, target: list[int], allow_factor_change: bool
) -> VersionedRecord | None:
    check_assignment(state, target, None)
    if not allow_factor_change:
        settled = (set(partition.replicas) | set(partition.adding)) - set(partition.removing)
        if len(settled) != len(target):
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"The replication factor is changed from {len(settled)} to {len(target)}",
            )
    # A move in progress gives way whole: Kafka would go on to remove what the new one keeps, and wait for ever for a
    # replica to be added that the new one does not have.
    settled_replicas = set(partition.replicas) - set(partition.adding)
    removing = sorted(set(partition.replicas) - set(target))
    change = PartitionChange(state, topic.name, topic.id, index, partition)
    change.replicas = list(target) + removing
    change.removing = removing
    change.adding = sorted(set(target) - settled_replicas)
    return change.build()


def alter_partition_reassignments(
    state: ControllerState, request: AlterPartitionReassignmentsRequest, version: int
) -> Decision:
    from pylogd.protocol.messages import alter_partition_reassignments as m

    allow = request.allow_replication_factor_change if version >= 1 else True
    records: list[VersionedRecord] = []
    responses = []
    for wanted in request.topics:
        topic = state.image.topics.get(wanted.name)
        answers = []
        for data in wanted.partitions:
            index = data.partition_index
            answer = m.ReassignablePartitionResponse(partition_index=index, error_message=None)
            answers.append(answer)
            try:
                if topic is None:
                    raise KafkaError(
                        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {wanted.name}."
                    )
                partition = topic.partition(index)
                if partition is None:
                    raise KafkaError(
                        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {wanted.name}:{index}."
                    )
                if data.replicas is None:
                    record = _cancel(state, topic, index, partition)
                else:
                    record = _move(state, topic, index, partition, data.replicas, allow)
                if record is not None:
                    records.append(record)
            except KafkaError as error:
                answer.error_code, answer.error_message = error.code, client_message(error)
        responses.append(m.ReassignableTopicResponse(name=wanted.name, partitions=answers))
    response = m.AlterPartitionReassignmentsResponse(
        error_message=None, allow_replication_factor_change=allow, responses=responses
    )
    return Decision(records, response)


def list_partition_reassignments(state: ControllerState, request: ListPartitionReassignmentsRequest) -> Decision:
    from pylogd.protocol.messages import list_partition_reassignments as m

    def ongoing(topic: Topic, indexes: Iterable[int]) -> list[m.OngoingPartitionReassignment]:
        found = []
        for index in indexes:
            partition = topic.partition(index)
            if partition is not None and partition.is_reassigning():
                found.append(
                    m.OngoingPartitionReassignment(
                        partition_index=index,
                        replicas=list(partition.replicas),
                        adding_replicas=list(partition.adding),
                        removing_replicas=list(partition.removing),
                    )
                )
        return found

    topics = []
    wanted: list[tuple[Topic, Sequence[int]]]
    if request.topics is None:
        wanted = [(topic, range(len(topic.partitions))) for topic in state.image.topics.values()]
    else:
        known = state.image.topics
        wanted = [(known[t.name], t.partition_indexes) for t in request.topics if t.name in known]
    for topic, indexes in wanted:
        partitions = ongoing(topic, indexes)
        if partitions:
            topics.append(m.OngoingTopicReassignment(name=topic.name, partitions=partitions))
    return Decision([], m.ListPartitionReassignmentsResponse(error_message=None, topics=topics))
