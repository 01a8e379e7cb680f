"""AssignReplicasToDirs: a broker with several log directories says which one it put each replica in."""

from __future__ import annotations

from typing import Any

from pylogd.controller.decide.partition_change import PartitionChange
from pylogd.controller.state import ControllerState, Decision
from pylogd.metadata import feature_levels
from pylogd.metadata.record_batches import VersionedRecord
from pylogd.protocol.errors import ErrorCode, KafkaError


def assign_replicas_to_dirs(state: ControllerState, request: Any) -> Decision:
    from pylogd.protocol.messages import assign_replicas_to_dirs as m

    if not feature_levels.directory_assignment_supported(state.image.metadata_version):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "Directory assignment is not supported yet.")
    broker_id = request.broker_id
    state.check_broker_epoch(broker_id, request.broker_epoch)
    broker = state.image.brokers[broker_id]
    records: list[VersionedRecord] = []
    directories = []
    for directory in request.directories:
        directory_id = bytes(directory.id)
        online = broker.has_online_directory(directory_id)
        topics = []
        for topic_data in directory.topics:
            topic = state.image.topics_by_id.get(bytes(topic_data.topic_id))
            answers = []
            for data in topic_data.partitions:
                index = data.partition_index
                partition = None if topic is None else topic.partition(index)
                code = ErrorCode.NONE
                if topic is None:
                    code = ErrorCode.UNKNOWN_TOPIC_ID
                elif partition is None:
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif broker_id not in partition.replicas:
                    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                else:
                    change = PartitionChange(state, topic.name, topic.id, index, partition)
                    change.directories[broker_id] = directory_id
                    before = partition.directory(broker_id)
                    if not online:
                        change.isr = [replica for replica in partition.isr if replica != broker_id]
                    elif before is not None and not broker.has_online_directory(before):
                        change.forget(broker_id)  # no move from one to the other: the replica was made anew
                    record = change.build()
                    if record is not None:
                        records.append(record)
                answers.append(m.ResponsePartitionData(partition_index=index, error_code=code))
            topics.append(m.ResponseTopicData(topic_id=bytes(topic_data.topic_id), partitions=answers))
        directories.append(m.ResponseDirectoryData(id=directory_id, topics=topics))
    return Decision(records, m.AssignReplicasToDirsResponse(directories=directories), atomic=False)
