"""Who leads: elections asked for, and those that follow from a broker coming or going."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pylogd.controller.decide.partition_change import PREFERRED, UNCLEAN, PartitionChange
from pylogd.controller.state import ControllerState, Decision
from pylogd.metadata.record_batches import VersionedRecord
from pylogd.metadata.registrations import NO_LEADER, Partition, Topic
from pylogd.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from pylogd.protocol.messages.elect_leaders import ElectLeadersRequest

PREFERRED_ELECTION = 0
UNCLEAN_ELECTION = 1

Placed = tuple[Topic, int, Partition]


def with_replica_in_isr(state: ControllerState, broker_id: int) -> Iterator[Placed]:
    return (placed for placed in state.image.partitions() if broker_id in placed[2].isr)


def with_replica_in_elr(state: ControllerState, broker_id: int) -> Iterator[Placed]:
    return (placed for placed in state.image.partitions() if broker_id in placed[2].elr)


def without_leader(state: ControllerState) -> Iterator[Placed]:
    return (placed for placed in state.image.partitions() if placed[2].leader == NO_LEADER)


def has_leaderships(state: ControllerState, broker_id: int) -> bool:
    return any(partition.leader == broker_id for _, _, partition in state.image.partitions())


def leader_and_isr_updates(
    state: ControllerState,
    partitions: Iterable[Placed],
    *,
    remove: int = NO_LEADER,
    add: int = NO_LEADER,
    unclean_shutdown: int = NO_LEADER,
    returned: int = NO_LEADER,
) -> list[VersionedRecord]:
    """Changes of `partitions` when broker `remove` leaves, `add` is about to be unfenced, or `unclean_shutdown` came
    back without a clean shutdown and so may have lost the end of its logs. Nobody waits for `returned` any more."""

    def acceptable(broker_id: int) -> bool:
        if broker_id in (remove, unclean_shutdown):
            return False
        return broker_id == add or state.is_active(broker_id)

    records: list[VersionedRecord] = []
    for topic, index, partition in partitions:
        change = PartitionChange(state, topic.name, topic.id, index, partition, acceptable)
        if returned != NO_LEADER and state.may_elect_unclean(topic.name, partition, returned):
            change.election = UNCLEAN
        if unclean_shutdown != NO_LEADER:
            change.unclean_shutdown = (unclean_shutdown,)
        change.isr = [replica for replica in partition.isr if replica not in (remove, unclean_shutdown)]
        record = change.build()
        if record is not None:
            records.append(record)
    return records


def _elect(state: ControllerState, topic_name: str, index: int, kind: int) -> VersionedRecord:
    topic = state.image.topics.get(topic_name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic_name}")
    partition = topic.partition(index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic_name}-{index}")
    done = partition.leader == partition.preferred_leader if kind == PREFERRED_ELECTION else partition.leader >= 0
    if done:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED)
    change = PartitionChange(state, topic_name, topic.id, index, partition)
    change.election = PREFERRED if kind == PREFERRED_ELECTION else UNCLEAN
    record = change.build()
    if record is None:
        raise KafkaError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
            if kind == PREFERRED_ELECTION
            else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        )
    return record


def elect_leaders(state: ControllerState, request: ElectLeadersRequest, version: int) -> Decision:
    """Version 0 knows only preferred elections. No list of partitions means all of them; those already as wished are
    then left out of the answer."""
    from pylogd.protocol.messages import elect_leaders as m

    kind = request.election_type if version >= 1 else PREFERRED_ELECTION
    if kind not in (PREFERRED_ELECTION, UNCLEAN_ELECTION) and request.topic_partitions != []:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {kind}")
    everything = request.topic_partitions is None
    wanted: list[tuple[str, Sequence[int]]]
    if request.topic_partitions is None:
        wanted = [(topic.name, range(len(topic.partitions))) for topic in state.image.topics.values()]
    else:
        wanted = [(topic.topic, topic.partitions) for topic in request.topic_partitions]
    records: list[VersionedRecord] = []
    results = []
    for name, indexes in wanted:
        answers = []
        for index in indexes:
            code, message = ErrorCode.NONE, None
            try:
                records.append(_elect(state, name, index, kind))
            except KafkaError as error:
                if everything and error.code is ErrorCode.ELECTION_NOT_NEEDED:
                    continue
                code, message = error.code, error.message
            answers.append(m.PartitionResult(partition_id=index, error_code=code, error_message=message))
        results.append(m.ReplicaElectionResult(topic=name, partition_result=answers))
    return Decision(records, m.ElectLeadersResponse(replica_election_results=results), atomic=False)


def balance_leaders(state: ControllerState) -> Decision:
    """Preferred leaders for partitions that have another one, a bounded number at a time; the reply is whether more
    may be waiting."""
    records: list[VersionedRecord] = []
    limit = state.settings.elections_max
    for topic, index, partition in state.image.partitions():
        if partition.leader != partition.preferred_leader:
            change = PartitionChange(state, topic.name, topic.id, index, partition)
            change.election = PREFERRED
            record = change.build()
            if record is not None:
                records.append(record)
                if len(records) >= limit:
                    break
    return Decision(records, len(records) >= limit, atomic=False)


def elect_unclean(state: ControllerState) -> Decision:
    """Leaders for leaderless partitions of topics that allow an unclean election, a bounded number at a time."""
    records: list[VersionedRecord] = []
    limit = state.settings.elections_max
    for topic, index, partition in without_leader(state):
        if state.may_elect_unclean(topic.name, partition):
            try:
                records.append(_elect(state, topic.name, index, UNCLEAN_ELECTION))
            except KafkaError:
                continue  # nobody alive holds a replica: the next round tries again
            if len(records) >= limit:
                break
    return Decision(records, len(records) >= limit, atomic=False)
