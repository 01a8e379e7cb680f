"""AssignReplicasToDirs: a broker with several log directories says which one it put each replica in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pylogd.controller.decide.partition_change import PartitionChange
from pylogd.controller.state import ControllerState, Decision
from pylogd.metadata import feature_levels
from pylogd.metadata.record_batches import VersionedRecord
from pylogd.metadata.registrations import Broker, Topic
from pylogd.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from pylogd.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest


def assign_replicas_to_dirs(state: ControllerState, request: AssignReplicasToDirsRequest) -> Decision:
    from pylogd.protocol.messages import assign_replicas_to_dirs as m

    if not feature_levels.directory_assignment_supported(state.image.metadata_version):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "Directory assignment is not supported yet.")
    state.check_broker_epoch(request.broker_id, request.broker_epoch)
    broker = state.image.brokers[request.broker_id]
    records: list[VersionedRecord] = []
    directories = []
    for directory in request.directories:
        directory_id = bytes(directory.id)
        topics = []
        for topic_data in directory.topics:
            topic = state.image.topics_by_id.get(bytes(topic_data.topic_id))
            answers = []
            for data in topic_data.partitions:
                code, record = _place(state, broker, topic, data.partition_index, directory_id)
                if record is not None:
                    records.append(record)
                answers.append(m.ResponsePartitionData(partition_index=data.partition_index, error_code=code))
            topics.append(m.ResponseTopicData(topic_id=bytes(topic_data.topic_id), partitions=answers))
        directories.append(m.ResponseDirectoryData(id=directory_id, topics=topics))
    return Decision(records, m.AssignReplicasToDirsResponse(directories=directories), atomic=False)


def _place(
    state: ControllerState, broker: Broker, topic: Topic | None, index: int, directory_id: bytes
) -> tuple[ErrorCode, VersionedRecord | None]:
    """One replica of `broker` is in this directory now: the answer, and what that changes."""
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID, None
    partition = topic.partition(index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
    if broker.id not in partition.replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER, None
    change = PartitionChange(state, topic.name, topic.id, index, partition)
    change.directories[broker.id] = directory_id
    before = partition.directory(broker.id)
    if not broker.has_online_directory(directory_id):
        change.isr = [replica for replica in partition.isr if replica != broker.id]
    elif before is not None and not broker.has_online_directory(before):
        change.forget(broker.id)  # no move from one to the other: the replica was made anew
    return ErrorCode.NONE, change.build()
