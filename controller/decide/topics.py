"""Topics: create, delete, add partitions. Pure decisions on the state as of the last appended record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pylogd.controller.decide import configs
from pylogd.controller.decide.placement import place
from pylogd.controller.state import RECORDS_MAX, ControllerState, Decision, client_message
from pylogd.metadata.image import TOPIC_RESOURCE
from pylogd.metadata.record_batches import VersionedRecord
from pylogd.metadata.registrations import Partition
from pylogd.metadata.snapshot import partition_record
from pylogd.metadata.topic_names import CLUSTER_METADATA_TOPIC, invalid_name_reason
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.uuids import UNASSIGNED_DIRECTORY, ZERO

if TYPE_CHECKING:
    from pylogd.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
    from pylogd.protocol.messages.create_topics import CreatableTopic, CreatableTopicResult, CreateTopicsRequest
    from pylogd.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest

PARTITIONS_PER_REQUEST_MAX = 10_000


def check_name(state: ControllerState, name: str) -> None:
    """Raises unless a topic called `name` may be created."""
    reason = invalid_name_reason(name)
    if name in state.image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if "." in name or "_" in name:
        for other in state.image.colliding.get(name.replace(".", "_"), ()):
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def check_assignment(state: ControllerState, brokers: Sequence[int], replication_factor: int | None) -> None:
    """Raises INVALID_REPLICA_ASSIGNMENT unless `brokers` can be one partition's replicas."""

    def refuse(message: str) -> KafkaError:
        return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "The manual partition assignment includes " + message)

    if not brokers:
        raise refuse("an empty replica list.")
    previous = None
    for broker in sorted(brokers):
        if broker not in state.image.brokers:
            raise refuse(f"broker {broker}, but no such broker is registered.")
        if broker == previous:
            raise refuse(f"the broker {broker} more than once.")
        previous = broker
    if replication_factor is not None and len(brokers) != replication_factor:
        raise refuse(
            f"a partition with {len(brokers)} replica(s), but this is not consistent with previous "
            f"partitions, which have {replication_factor} replica(s)."
        )


def new_partition(state: ControllerState, replicas: Sequence[int], isr: Sequence[int]) -> Partition:
    brokers = state.image.brokers
    directories = tuple(
        brokers[replica].default_directory() if replica in brokers else UNASSIGNED_DIRECTORY for replica in replicas
    )
    return Partition(tuple(replicas), directories, tuple(isr), isr[0])


def _manual_partition(
    state: ControllerState, index: int, brokers: Sequence[int], replication_factor: int | None
) -> Partition:
    check_assignment(state, brokers, replication_factor)
    isr = [broker for broker in brokers if state.is_active(broker)]
    if not isr:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"All brokers specified in the manual partition assignment for partition {index} "
            "are fenced or in controlled shutdown.",
        )
    return new_partition(state, brokers, isr)


def _placed_partitions(state: ControllerState, count: int, replication_factor: int) -> list[Partition]:
    partitions = []
    for replicas in place(state, count, replication_factor):
        isr = [broker for broker in replicas if state.is_active(broker)]
        if not isr:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR, "All brokers are currently fenced or in controlled shutdown."
            )
        partitions.append(new_partition(state, replicas, isr))
    return partitions


def _assigned_partitions(state: ControllerState, topic: CreatableTopic) -> list[Partition]:
    if topic.replication_factor != -1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        )
    if topic.num_partitions != -1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        )
    found: dict[int, Partition] = {}
    replication_factor: int | None = None
    for assignment in topic.assignments:
        index = assignment.partition_index
        if index in found:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {index}",
            )
        found[index] = _manual_partition(state, index, assignment.broker_ids, replication_factor)
        replication_factor = len(assignment.broker_ids)
    if sorted(found) != list(range(len(found))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
        )
    return [found[index] for index in range(len(found))]


def _partitions(state: ControllerState, topic: CreatableTopic) -> list[Partition]:
    if topic.assignments:
        return _assigned_partitions(state, topic)
    if topic.replication_factor < -1 or topic.replication_factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.num_partitions < -1 or topic.num_partitions == 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    count = state.settings.num_partitions if topic.num_partitions == -1 else topic.num_partitions
    replicas = state.settings.replication_factor if topic.replication_factor == -1 else topic.replication_factor
    try:
        return _placed_partitions(state, count, replicas)
    except KafkaError as error:
        raise KafkaError(error.code, f"Unable to replicate the partition {replicas} time(s): {error.message}") from None


def _create_topic(
    state: ControllerState, topic: CreatableTopic, version: int
) -> tuple[list[VersionedRecord], CreatableTopicResult]:
    from pylogd.protocol.messages import create_topics as m
    from pylogd.protocol.messages.metadata_records import TopicRecord

    check_name(state, topic.name)
    missing = [config.name for config in topic.configs if config.value is None]
    if missing:
        raise KafkaError(ErrorCode.INVALID_CONFIG, "Null value not supported for topic configs: " + ",".join(missing))
    values = {config.name: config.value for config in topic.configs if config.value is not None}
    config_records: list[VersionedRecord] = []
    if values:
        operations = {name: (configs.SET, value) for name, value in values.items()}
        config_records = configs.incremental(state, (TOPIC_RESOURCE, topic.name), operations, created=True)
    partitions = _partitions(state, topic)

    topic_id = state.new_uuid()
    result = m.CreatableTopicResult(name=topic.name, topic_id=topic_id, error_message=None)
    if version >= 5:
        result.num_partitions = len(partitions)
        result.replication_factor = len(partitions[0].replicas)
        result.configs = [
            m.CreatableTopicConfigs(
                name=effective.name,
                value=None if effective.sensitive else effective.value,
                read_only=effective.read_only,
                config_source=effective.source,
                is_sensitive=effective.sensitive,
            )
            for effective in state.rules.topic_configs(values, state.node_config(), state.cluster_config())
        ]
    # ConfigRecords come after the TopicRecord and before the PartitionRecords.
    records: list[VersionedRecord] = [(TopicRecord(name=topic.name, topic_id=topic_id), 0), *config_records]
    level, elr = state.image.metadata_version, state.image.elr_enabled
    for index, partition in enumerate(partitions):
        records.append(partition_record(topic_id, index, partition, level, elr))
    return records, result


def create_topics(state: ControllerState, request: CreateTopicsRequest, version: int) -> Decision:
    """Every topic stands alone: one that is refused does not keep the others from being created."""
    from pylogd.protocol.messages import create_topics as m

    counts: dict[str, int] = {}
    for topic in request.topics:
        counts[topic.name] = counts.get(topic.name, 0) + 1
    unique = [t for t in request.topics if counts[t.name] == 1 and t.name != CLUSTER_METADATA_TOPIC]

    total = 0
    for topic in unique:
        if topic.assignments:
            total += len(topic.assignments)
        elif topic.num_partitions == -1:
            total += state.settings.num_partitions
        else:
            total += max(topic.num_partitions, 0)
    if total > PARTITIONS_PER_REQUEST_MAX:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")

    records: list[VersionedRecord] = []
    results = []
    for topic in unique:
        try:
            created, result = _create_topic(state, topic, version)
            if len(records) + len(created) > RECORDS_MAX:
                raise KafkaError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
            records += created
        except KafkaError as error:
            result = m.CreatableTopicResult(
                name=topic.name, error_code=error.code, error_message=error.message or error.code.message
            )
        results.append(result)
    for name, count in counts.items():
        if count > 1:
            message = "Duplicate topic name."
        elif name == CLUSTER_METADATA_TOPIC:
            message = f"Creation of internal topic {CLUSTER_METADATA_TOPIC} is prohibited."
        else:
            continue
        refused = m.CreatableTopicResult(name=name, error_code=ErrorCode.INVALID_REQUEST, error_message=message)
        results.append(refused)
    return Decision([] if request.validate_only else records, m.CreateTopicsResponse(topics=results))


def _result(name: str | None, topic_id: bytes, code: ErrorCode, message: str | None = None) -> DeletableTopicResult:
    from pylogd.protocol.messages.delete_topics import DeletableTopicResult

    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message)


def _asked_for(request: DeleteTopicsRequest) -> tuple[Counter[str], Counter[bytes], list[DeletableTopicResult]]:
    """Names, ids, and the answers to what names no topic, or one in two ways, or twice."""
    names: Counter[str] = Counter(request.topic_names or ())
    ids: Counter[bytes] = Counter()
    refused = []
    invalid = ErrorCode.INVALID_REQUEST
    for topic in request.topics or ():
        topic_id = bytes(topic.topic_id)
        if topic.name is None and topic_id == ZERO:
            refused.append(_result(None, ZERO, invalid, "Neither topic name nor id were specified."))
        elif topic.name is None:
            ids[topic_id] += 1
        elif topic_id == ZERO:
            names[topic.name] += 1
        else:
            text = "You may not specify both topic name and topic id."
            refused.append(_result(topic.name, topic_id, invalid, text))
    refused += [_result(name, ZERO, invalid, "Duplicate topic name.") for name, count in names.items() if count > 1]
    refused += [_result(None, id_, invalid, "Duplicate topic id.") for id_, count in ids.items() if count > 1]
    return names, ids, refused


def delete_topics(state: ControllerState, request: DeleteTopicsRequest, version: int) -> Decision:
    """Topics by name (to version 5) or by name or id (from 6); each is deleted or refused on its own."""
    from pylogd.protocol.messages import delete_topics as m
    from pylogd.protocol.messages.metadata_records import RemoveTopicRecord

    if not state.settings.delete_topic_enable:
        if version < 3:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "This version does not support topic deletion.")
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED)

    names, ids, results = _asked_for(request)
    chosen: dict[bytes, str] = {}
    for topic_id, count in ids.items():
        if count > 1:
            continue
        found = state.image.topics_by_id.get(topic_id)
        if found is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID
            results.append(_result(None, topic_id, code, code.message))
        else:
            chosen[topic_id] = found.name
    for name, count in names.items():
        if count > 1:
            continue
        found = state.image.topics.get(name)
        if found is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            results.append(_result(name, ZERO, code, code.message))
        elif found.id in chosen or ids[found.id] > 1:
            chosen.pop(found.id, None)
            text = "The provided topic name maps to an ID that was already supplied."
            results.append(_result(name, found.id, ErrorCode.INVALID_REQUEST, text))
        else:
            chosen[found.id] = name
    records: list[VersionedRecord] = []
    for topic_id, name in chosen.items():
        records.append((RemoveTopicRecord(topic_id=topic_id), 0))
        results.append(_result(name, topic_id, ErrorCode.NONE))
    return Decision(records, m.DeleteTopicsResponse(responses=results))


def _grow(state: ControllerState, topic: CreatePartitionsTopic) -> list[VersionedRecord]:
    found = state.image.topics.get(topic.name)
    if found is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    current = len(found.partitions)
    if topic.count == current:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partition(s).")
    if topic.count < current:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {current} partition(s); {topic.count} would not be an increase.",
        )
    additional = topic.count - current
    if topic.assignments is not None and len(topic.assignments) != additional:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {additional} additional partition(s), but only {len(topic.assignments)} "
            "assignment(s) were specified.",
        )
    if additional > RECORDS_MAX:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
    replication_factor = len(found.partitions[0].replicas)
    if topic.assignments is None:
        try:
            partitions = _placed_partitions(state, additional, replication_factor)
        except KafkaError as error:
            if error.message == "All brokers are currently fenced or in controlled shutdown.":
                text = f"Unable to replicate the partition {replication_factor} time(s): {error.message}"
                raise KafkaError(error.code, text) from None
            raise
    else:
        partitions = [
            _manual_partition(state, current + i, assignment.broker_ids, replication_factor)
            for i, assignment in enumerate(topic.assignments)
        ]
    level, elr = state.image.metadata_version, state.image.elr_enabled
    return [partition_record(found.id, current + i, partition, level, elr) for i, partition in enumerate(partitions)]


def create_partitions(state: ControllerState, request: CreatePartitionsRequest) -> Decision:
    """Grows topics to a number of partitions."""
    from pylogd.protocol.messages import create_partitions as m

    counts: dict[str, int] = {}
    for topic in request.topics:
        counts[topic.name] = counts.get(topic.name, 0) + 1
    results = [
        m.CreatePartitionsTopicResult(
            name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="Duplicate topic name."
        )
        for name, count in counts.items()
        if count > 1
    ]
    records: list[VersionedRecord] = []
    for topic in request.topics:
        if counts[topic.name] > 1:
            continue
        try:
            grown = _grow(state, topic)
            if len(records) + len(grown) > RECORDS_MAX:
                raise KafkaError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
            records += grown
            result = m.CreatePartitionsTopicResult(name=topic.name, error_code=ErrorCode.NONE, error_message=None)
        except KafkaError as error:
            result = m.CreatePartitionsTopicResult(
                name=topic.name, error_code=error.code, error_message=client_message(error)
            )
        results.append(result)
    return Decision([] if request.validate_only else records, m.CreatePartitionsResponse(results=results))
