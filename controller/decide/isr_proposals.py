"""AlterPartition: the leader of a partition proposes who is in sync; the controller decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pylogd.controller.decide.partition_change import PartitionChange
from pylogd.controller.state import ControllerState, Decision
from pylogd.metadata.record_batches import VersionedRecord
from pylogd.metadata.registrations import NO_LEADER_CHANGE, RECOVERED, RECOVERING, Partition, merge_partition
from pylogd.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from pylogd.protocol.messages.alter_partition import AlterPartitionRequest, RequestPartitionData


def _proposed(data: RequestPartitionData, version: int) -> list[tuple[int, int]]:
    """(broker id, broker epoch) of the wished ISR; before version 3 without epochs, which -1 leaves unchecked."""
    if version >= 3:
        return [(member.broker_id, member.broker_epoch) for member in data.new_isr_with_epochs]
    return [(broker_id, -1) for broker_id in data.new_isr]


def _eligible(state: ControllerState, broker_id: int, epoch: int) -> bool:
    broker = state.image.brokers.get(broker_id)
    return broker is not None and broker.is_active and epoch in (-1, broker.epoch)


def _check(
    state: ControllerState,
    broker_id: int,
    partition: Partition | None,
    data: RequestPartitionData,
    isr: list[tuple[int, int]],
) -> ErrorCode:
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # A leader that knows more than we do has heard from a newer controller.
    if data.leader_epoch > partition.leader_epoch or data.partition_epoch > partition.partition_epoch:
        return ErrorCode.NOT_CONTROLLER
    if data.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if data.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    members = [member for member, _ in isr]
    if not members or len(set(members)) != len(members) or not set(members) <= set(partition.replicas):
        return ErrorCode.INVALID_REQUEST
    if partition.leader not in members:
        return ErrorCode.INVALID_REQUEST
    if data.leader_recovery_state == RECOVERING and (len(members) > 1 or partition.leader_recovery_state == RECOVERED):
        return ErrorCode.INVALID_REQUEST
    if not all(_eligible(state, member, epoch) for member, epoch in isr):
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def alter_partition(state: ControllerState, request: AlterPartitionRequest, version: int) -> Decision:
    from pylogd.protocol.messages import alter_partition as m

    state.check_broker_epoch(request.broker_id, request.broker_epoch)
    records: list[VersionedRecord] = []
    topics = []
    for topic_data in request.topics:
        topic = state.image.topics_by_id.get(bytes(topic_data.topic_id))
        answers = []
        for data in topic_data.partitions:
            answer = m.ResponsePartitionData(partition_index=data.partition_index)
            answers.append(answer)
            if topic is None:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_ID
                continue
            partition = topic.partition(data.partition_index)
            isr = _proposed(data, version)
            answer.error_code = _check(state, request.broker_id, partition, data, isr)
            if answer.error_code != ErrorCode.NONE or partition is None:
                continue
            change = PartitionChange(state, topic.name, topic.id, data.partition_index, partition)
            change.isr = [member for member, _ in isr]
            change.recovery_state = data.leader_recovery_state
            record = change.build()
            if record is not None:
                records.append(record)
                partition = merge_partition(partition, record[0], lambda value: value)
                if record[0].leader not in (request.broker_id, NO_LEADER_CHANGE):
                    # The change completed a reassignment that moves the leader: it must fetch metadata first.
                    answer.error_code = ErrorCode.NEW_LEADER_ELECTED
                    continue
            answer.leader_id = partition.leader
            answer.leader_epoch = partition.leader_epoch
            answer.isr = list(partition.isr)
            answer.leader_recovery_state = partition.leader_recovery_state
            answer.partition_epoch = partition.partition_epoch
        topics.append(m.ResponseTopicData(topic_id=bytes(topic_data.topic_id), partitions=answers))
    return Decision(records, m.AlterPartitionResponse(topics=topics), atomic=False)
