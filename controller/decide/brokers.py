"""Brokers: registration, heartbeats, fencing, controlled shutdown; and the registration of controllers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import filterfalse
from typing import TYPE_CHECKING, Any

from pylogd.controller.decide import elections
from pylogd.controller.heartbeats import BrokerState
from pylogd.controller.state import ControllerState, Decision
from pylogd.metadata import feature_levels
from pylogd.metadata.record_batches import VersionedRecord
from pylogd.metadata.registrations import NO_LEADER, Broker, is_online_directory
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.protocol.uuids import RESERVED_COUNT

if TYPE_CHECKING:
    from pylogd.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
    from pylogd.protocol.messages.broker_registration import BrokerRegistrationRequest
    from pylogd.protocol.messages.controller_registration import ControllerRegistrationRequest
    from pylogd.protocol.messages.unregister_broker import UnregisterBrokerRequest


def _change(broker_id: int, epoch: int, version: int, **fields: Any) -> VersionedRecord:
    from pylogd.protocol.messages.metadata_records import BrokerRegistrationChangeRecord

    return BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, **fields), version


def _check_directories(state: ControllerState, request: BrokerRegistrationRequest) -> None:
    directories = [bytes(directory) for directory in request.log_dirs]
    if not directories:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "No directories specified in request")
    if any(directory[:15] == bytes(15) and directory[15] < RESERVED_COUNT for directory in directories):
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "Reserved directory ID in request")
    if len(set(directories)) != len(directories):
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "Duplicate directory ID in request")
    for other in state.image.brokers.values():
        if other.id != request.broker_id:
            for directory in directories:
                if directory in other.directories:
                    raise KafkaError(
                        ErrorCode.INVALID_REGISTRATION,
                        f"Broker {other.id} is already registered with directory {directory.hex()}",
                    )


def _check_feature(name: str, finalized: int, supported: tuple[int, int]) -> None:
    low, high = supported
    if not low <= finalized <= high:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"Unable to register because the broker does not support finalized version {finalized} of {name}. "
            f"The broker wants a version between {low} and {high}, inclusive.",
        )


def shutdown_records(
    state: ControllerState, broker_id: int, clean: bool, directories: Sequence[bytes] = ()
) -> list[VersionedRecord]:
    """What a broker that went away and comes back with `directories` leaves behind. After an unclean shutdown it may
    have lost the end of its logs, and without its directory all of them, so with eligible leader replicas it leaves
    both ISR and ELR."""
    in_sync = list(elections.with_replica_in_isr(state, broker_id))
    if not state.image.elr_enabled:
        return elections.leader_and_isr_updates(state, in_sync, remove=broker_id)

    def kept(placed: elections.Placed) -> bool:
        directory = placed[2].directory(broker_id)
        return clean and directory is not None and is_online_directory(directory, directories)

    records = elections.leader_and_isr_updates(state, filter(kept, in_sync), remove=broker_id)
    for held in (in_sync, elections.with_replica_in_elr(state, broker_id)):
        records += elections.leader_and_isr_updates(state, filterfalse(kept, held), unclean_shutdown=broker_id)
    return records


def _check_process(state: ControllerState, request: BrokerRegistrationRequest, now_ms: int) -> None:
    """Raises unless a broker of this cluster asks, and no other process is known to be alive under its id."""
    if request.cluster_id != state.settings.cluster_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {state.settings.cluster_id}, but got cluster ID {request.cluster_id}",
        )
    existing = state.image.brokers.get(request.broker_id)
    if (
        existing is not None
        and existing.incarnation_id != bytes(request.incarnation_id)
        and state.heartbeats.has_session(request.broker_id, existing.epoch, now_ms)
    ):
        raise KafkaError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            "Another broker is registered with that broker id. If the broker was recently restarted this should "
            "self-resolve once the heartbeat manager expires the broker's session.",
        )
    if request.is_migrating_zk_broker:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, "Controller does not support registering ZK brokers.")


def _check_features(state: ControllerState, offered: Mapping[str, tuple[int, int]]) -> None:
    """Raises unless the broker can run at every level that is finalized."""
    finalized = state.finalized_features()
    for name, supported in offered.items():
        _check_feature(name, finalized.get(name, 0), supported)
    if feature_levels.METADATA_VERSION not in offered:
        raise KafkaError(
            ErrorCode.INVALID_REGISTRATION, f"Request features do not contain '{feature_levels.METADATA_VERSION}'"
        )
    for name, value in finalized.items():
        if value != 0 and name not in offered:
            _check_feature(name, value, (0, 0))


def register_broker(state: ControllerState, request: BrokerRegistrationRequest, version: int, now_ms: int) -> Decision:
    """BrokerRegistration. The new epoch is the offset at which the registration lands, so it only grows."""
    from pylogd.protocol.messages import metadata_records as m
    from pylogd.protocol.messages.broker_registration import BrokerRegistrationResponse

    _check_process(state, request, now_ms)
    level = state.image.metadata_version
    with_directories = feature_levels.directory_assignment_supported(level)
    if with_directories:
        _check_directories(state, request)
    offered = {f.name: (f.min_supported_version, f.max_supported_version) for f in request.features}
    _check_features(state, offered)

    broker_id = request.broker_id
    incarnation = bytes(request.incarnation_id)
    record = m.RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=incarnation,
        rack=request.rack,
        end_points=[
            m.BrokerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in request.listeners
        ],
        features=[
            m.BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in offered.items()
        ],
    )
    if with_directories:
        record.log_dirs = [bytes(directory) for directory in request.log_dirs]
    records: list[VersionedRecord] = []
    existing = state.image.brokers.get(broker_id)
    if existing is None or existing.incarnation_id != incarnation:
        # Brokers before version 3 of the request cannot say how they stopped.
        clean = version >= 3 and existing is not None and existing.epoch == request.previous_broker_epoch
        records = shutdown_records(state, broker_id, clean, record.log_dirs)
        record.broker_epoch = state.next_offset
    else:
        record.fenced = existing.fenced
        record.in_controlled_shutdown = existing.in_controlled_shutdown
        record.broker_epoch = existing.epoch
    records.append((record, feature_levels.register_broker_record_version(level)))
    # Not atomic: the registration comes last, so a failover in between only repeats the clean-up.
    return Decision(records, BrokerRegistrationResponse(broker_epoch=record.broker_epoch), atomic=False)


def fence_records(state: ControllerState, broker: Broker) -> list[VersionedRecord]:
    records = elections.leader_and_isr_updates(state, elections.with_replica_in_isr(state, broker.id), remove=broker.id)
    records.append(_change(broker.id, broker.epoch, 0, fenced=1))
    return records


def _unfence_records(state: ControllerState, broker: Broker) -> list[VersionedRecord]:
    records = [_change(broker.id, broker.epoch, 0, fenced=-1)]
    records += elections.leader_and_isr_updates(state, elections.without_leader(state), add=broker.id)
    return records


def _controlled_shutdown_records(state: ControllerState, broker: Broker) -> list[VersionedRecord]:
    records: list[VersionedRecord] = []
    if not broker.in_controlled_shutdown:
        records.append(_change(broker.id, broker.epoch, 1, in_controlled_shutdown=1))
    records += elections.leader_and_isr_updates(
        state, elections.with_replica_in_isr(state, broker.id), remove=broker.id
    )
    return records


def _directory_records(
    state: ControllerState, broker: Broker, request: BrokerHeartbeatRequest, fenced: bool
) -> list[VersionedRecord]:
    """Directories that failed, and directories that take no new partitions. `fenced`: what the broker is afterwards."""
    records: list[VersionedRecord] = []
    level = state.image.metadata_version
    if feature_levels.directory_assignment_supported(level):
        offline = {bytes(directory) for directory in request.offline_log_dirs}
        newly = [directory for directory in broker.directories if directory in offline]
        if newly:
            affected = (placed for placed in state.image.partitions() if placed[2].directory(broker.id) in newly)
            returned = NO_LEADER if fenced else broker.id
            records += elections.leader_and_isr_updates(state, affected, remove=broker.id, returned=returned)
            left = [directory for directory in broker.directories if directory not in offline]
            records.append(_change(broker.id, broker.epoch, 2, log_dirs=left))
    if feature_levels.cordoned_dirs_supported(level) and request.cordoned_log_dirs is not None:
        cordoned = tuple(bytes(directory) for directory in request.cordoned_log_dirs)
        known = broker.cordoned_directories
        if known is None or set(known) != set(cordoned):
            records.append(_change(broker.id, broker.epoch, 3, cordoned_log_dirs=list(cordoned)))
    return records


def _next_state(state: ControllerState, broker: Broker, request: BrokerHeartbeatRequest) -> BrokerState:
    current = state.heartbeats.state(broker.id)
    if current is BrokerState.FENCED:
        if request.want_shut_down:
            return BrokerState.SHUTDOWN_NOW
        caught_up = request.current_metadata_offset >= broker.registered_at
        return BrokerState.UNFENCED if not request.want_fence and caught_up else BrokerState.FENCED
    if current is BrokerState.UNFENCED:
        if request.want_fence:
            return BrokerState.SHUTDOWN_NOW if request.want_shut_down else BrokerState.FENCED
        if request.want_shut_down:
            leads = elections.has_leaderships(state, broker.id)
            return BrokerState.CONTROLLED_SHUTDOWN if leads else BrokerState.SHUTDOWN_NOW
        return BrokerState.UNFENCED
    if elections.has_leaderships(state, broker.id) or not state.heartbeats.may_stop(broker.id):
        return BrokerState.CONTROLLED_SHUTDOWN
    return BrokerState.SHUTDOWN_NOW


def heartbeat(state: ControllerState, request: BrokerHeartbeatRequest) -> tuple[Decision, bool]:
    """BrokerHeartbeat: the decision, and whether the broker is in controlled shutdown now, in which case it may stop
    once the other brokers have replayed what this decision writes."""
    from pylogd.protocol.messages.broker_heartbeat import BrokerHeartbeatResponse

    state.check_broker_epoch(request.broker_id, request.broker_epoch)
    broker = state.image.brokers[request.broker_id]
    current = state.heartbeats.state(broker.id)
    following = _next_state(state, broker, request)
    records: list[VersionedRecord] = []
    if following is not current:
        if following in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW):
            records = fence_records(state, broker)
        elif following is BrokerState.UNFENCED:
            records = _unfence_records(state, broker)
        else:
            records = _controlled_shutdown_records(state, broker)
    records += _directory_records(state, broker, request, following.fenced)
    response = BrokerHeartbeatResponse(
        is_caught_up=request.current_metadata_offset >= broker.registered_at,
        is_fenced=following.fenced,
        should_shut_down=following is BrokerState.SHUTDOWN_NOW,
    )
    return Decision(records, response, atomic=False), following is BrokerState.CONTROLLED_SHUTDOWN


def fence_broker(state: ControllerState, broker_id: int, epoch: int) -> Decision:
    """Fences a broker whose session ran out or whose process is known to be gone. Epochs keep that safe: in a later
    process the same broker is left alone."""
    broker = state.image.brokers.get(broker_id)
    if broker is None or broker.epoch != epoch or broker.fenced:
        return Decision([], None)
    return Decision(fence_records(state, broker), None, atomic=False)


def unregister_broker(state: ControllerState, request: UnregisterBrokerRequest) -> Decision:
    from pylogd.protocol.messages.metadata_records import UnregisterBrokerRecord
    from pylogd.protocol.messages.unregister_broker import UnregisterBrokerResponse

    broker = state.image.brokers.get(request.broker_id)
    if broker is None:
        raise KafkaError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {request.broker_id} is not currently registered"
        )
    records = elections.leader_and_isr_updates(state, elections.with_replica_in_isr(state, broker.id), remove=broker.id)
    records += elections.leader_and_isr_updates(
        state, elections.with_replica_in_elr(state, broker.id), remove=broker.id
    )
    records.append((UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch), 0))
    return Decision(records, UnregisterBrokerResponse(error_message=None), atomic=False)


def register_controller(state: ControllerState, request: ControllerRegistrationRequest) -> Decision:
    from pylogd.protocol.messages import metadata_records as m
    from pylogd.protocol.messages.controller_registration import ControllerRegistrationResponse

    if not feature_levels.controller_registration_supported(state.image.metadata_version):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "The current MetadataVersion is too old to support controller registrations.",
        )
    record = m.RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=bytes(request.incarnation_id),
        zk_migration_ready=False,
        end_points=[
            m.ControllerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in request.listeners
        ],
        features=[
            m.ControllerFeature(
                name=f.name,
                min_supported_version=f.min_supported_version,
                max_supported_version=f.max_supported_version,
            )
            for f in request.features
        ],
    )
    return Decision([(record, 0)], ControllerRegistrationResponse(error_message=None))
