"""What the cluster knows of a partition and of a broker: immutable values, replaced whole when a record changes them.

Partitions are the bulk of the image (a cluster may have 200,000), so they are slotted, and their small tuples are
shared through an intern table by whoever builds them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pylogd.protocol.uuids import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY

if TYPE_CHECKING:
    from pylogd.protocol.messages.metadata_records import (
        BrokerRegistrationChangeRecord,
        PartitionChangeRecord,
        PartitionRecord,
        RegisterBrokerRecord,
    )

NO_LEADER = -1
NO_LEADER_CHANGE = -2

RECOVERED = 0
RECOVERING = 1


def is_online_directory(directory: bytes, online: Sequence[bytes]) -> bool:
    if directory in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY):
        return True
    if directory == LOST_DIRECTORY:
        return False
    return not online or directory in online


Intern = Callable[[tuple[Any, ...]], tuple[Any, ...]]


class Partition:
    """One partition's registration: where it lives, who leads it, who is in sync."""

    __slots__ = (
        "adding",
        "directories",
        "elr",
        "isr",
        "last_known_elr",
        "leader",
        "leader_epoch",
        "leader_recovery_state",
        "partition_epoch",
        "removing",
        "replicas",
    )

    def __init__(
        self,
        replicas: tuple[int, ...],
        directories: tuple[bytes, ...],
        isr: tuple[int, ...],
        leader: int,
        leader_epoch: int = 0,
        partition_epoch: int = 0,
        leader_recovery_state: int = RECOVERED,
        removing: tuple[int, ...] = (),
        adding: tuple[int, ...] = (),
        elr: tuple[int, ...] = (),
        last_known_elr: tuple[int, ...] = (),
    ) -> None:
        self.replicas = replicas
        self.directories = directories
        self.isr = isr
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.leader_recovery_state = leader_recovery_state
        self.removing = removing
        self.adding = adding
        self.elr = elr
        self.last_known_elr = last_known_elr

    def _key(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.__slots__)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Partition) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return "Partition(" + ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__) + ")"

    @property
    def preferred_leader(self) -> int:
        return self.replicas[0] if self.replicas else NO_LEADER

    def is_reassigning(self) -> bool:
        return bool(self.removing or self.adding)

    def directory(self, broker_id: int) -> bytes | None:
        """The directory that holds broker ``broker_id``'s replica; None when it has none."""
        for replica, directory in zip(self.replicas, self.directories):
            if replica == broker_id:
                return directory
        return None


def _directories(directories: Sequence[bytes] | None, replicas: int) -> tuple[bytes, ...]:
    if not directories or all(directory == MIGRATING_DIRECTORY for directory in directories):
        return (MIGRATING_DIRECTORY,) * replicas
    if len(directories) != replicas:
        raise ValueError(f"{replicas} replicas but {len(directories)} directories")
    return tuple(map(bytes, directories))


def partition_from_record(record: PartitionRecord, intern: Intern) -> Partition:
    """The partition a PartitionRecord creates."""
    return Partition(
        intern(tuple(record.replicas)),
        intern(_directories(record.directories, len(record.replicas))),
        intern(tuple(record.isr)),
        record.leader,
        record.leader_epoch,
        record.partition_epoch,
        record.leader_recovery_state,
        intern(tuple(record.removing_replicas or ())),
        intern(tuple(record.adding_replicas or ())),
        intern(tuple(record.eligible_leader_replicas or ())),
        intern(tuple(record.last_known_elr or ())),
    )


def merge_partition(current: Partition, record: PartitionChangeRecord, intern: Intern) -> Partition:
    """What a PartitionChangeRecord makes of ``current``: fields left out stay, any leader field bumps the epoch."""

    def changed(value: Sequence[int] | None, otherwise: tuple[int, ...]) -> tuple[int, ...]:
        return otherwise if value is None else intern(tuple(value))

    replicas = changed(record.replicas, current.replicas)
    directories = current.directories
    if record.directories is not None or replicas is not current.replicas:
        given = current.directories if record.directories is None else record.directories
        directories = intern(_directories(given, len(replicas)))
    leader_changed = record.leader != NO_LEADER_CHANGE
    state = record.leader_recovery_state
    return Partition(
        replicas,
        directories,
        changed(record.isr, current.isr),
        record.leader if leader_changed else current.leader,
        current.leader_epoch + 1 if leader_changed else current.leader_epoch,
        current.partition_epoch + 1,
        current.leader_recovery_state if state == -1 else state,
        changed(record.removing_replicas, current.removing),
        changed(record.adding_replicas, current.adding),
        changed(record.eligible_leader_replicas, current.elr),
        changed(record.last_known_elr, current.last_known_elr),
    )


def without_elr(current: Partition) -> Partition:
    """What a ClearElrRecord makes of ``current``."""
    return Partition(
        current.replicas,
        current.directories,
        current.isr,
        current.leader,
        current.leader_epoch,
        current.partition_epoch + 1,
        current.leader_recovery_state,
        current.removing,
        current.adding,
    )


class Topic:
    """A topic: its name, id and partitions by index."""

    __slots__ = ("id", "name", "partitions")

    def __init__(self, name: str, topic_id: bytes, partitions: list[Partition] | None = None) -> None:
        self.name = name
        self.id = topic_id
        self.partitions: list[Partition] = [] if partitions is None else partitions

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Topic)
            and self.name == other.name
            and self.id == other.id
            and self.partitions == other.partitions
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Topic({self.name!r}, {len(self.partitions)} partitions)"

    def partition(self, index: int) -> Partition | None:
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


class Endpoint:
    """Where one listener of a node is reached."""

    __slots__ = ("host", "name", "port", "security_protocol")

    def __init__(self, name: str, host: str, port: int, security_protocol: int = 0) -> None:
        self.name = name
        self.host = host
        self.port = port
        self.security_protocol = security_protocol

    def _key(self) -> tuple[Any, ...]:
        return self.name, self.host, self.port, self.security_protocol

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Endpoint) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"{self.name}://{self.host}:{self.port}"


class Broker:
    """A registered broker. ``registered_at`` is the offset of its RegisterBrokerRecord: it must have replayed that
    far before it may be unfenced (not part of the state a snapshot keeps)."""

    __slots__ = (
        "cordoned_directories",
        "directories",
        "endpoints",
        "epoch",
        "features",
        "fenced",
        "id",
        "in_controlled_shutdown",
        "incarnation_id",
        "is_migrating_zk_broker",
        "rack",
        "registered_at",
    )

    def __init__(
        self,
        broker_id: int,
        epoch: int,
        incarnation_id: bytes,
        endpoints: dict[str, Endpoint],
        features: dict[str, tuple[int, int]],
        rack: str | None = None,
        fenced: bool = True,
        in_controlled_shutdown: bool = False,
        directories: tuple[bytes, ...] = (),
        cordoned_directories: tuple[bytes, ...] | None = None,
        is_migrating_zk_broker: bool = False,
        registered_at: int = -1,
    ) -> None:
        self.id = broker_id
        self.epoch = epoch
        self.incarnation_id = incarnation_id
        self.endpoints = endpoints
        self.features = features
        self.rack = rack
        self.fenced = fenced
        self.in_controlled_shutdown = in_controlled_shutdown
        self.directories = directories
        self.cordoned_directories = cordoned_directories
        self.is_migrating_zk_broker = is_migrating_zk_broker
        self.registered_at = registered_at

    def _key(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.__slots__ if name != "registered_at")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Broker) and self._key() == other._key()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "Broker(" + ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__) + ")"

    @property
    def is_active(self) -> bool:
        """Unfenced and not on its way out: may lead partitions."""
        return not self.fenced and not self.in_controlled_shutdown

    def has_online_directory(self, directory: bytes) -> bool:
        return is_online_directory(directory, self.directories)

    def has_uncordoned_directory(self) -> bool:
        if not self.directories or self.cordoned_directories is None:
            return True
        return any(directory not in self.cordoned_directories for directory in self.directories)

    def default_directory(self) -> bytes:
        """Where the controller places a new replica: the only directory, or left to the broker to choose."""
        if not self.directories:
            return MIGRATING_DIRECTORY
        return self.directories[0] if len(self.directories) == 1 else UNASSIGNED_DIRECTORY

    def replace(self, **changes: Any) -> Broker:
        values = {name: getattr(self, name) for name in self.__slots__ if name != "id"}
        values.update(changes)
        return Broker(self.id, **values)


def broker_from_record(record: RegisterBrokerRecord, offset: int) -> Broker:
    """The broker a RegisterBrokerRecord at ``offset`` creates."""
    cordoned = record.cordoned_log_dirs
    return Broker(
        record.broker_id,
        record.broker_epoch,
        bytes(record.incarnation_id),
        {e.name: Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points},
        {f.name: (f.min_supported_version, f.max_supported_version) for f in record.features},
        record.rack,
        record.fenced,
        record.in_controlled_shutdown,
        tuple(map(bytes, record.log_dirs)),
        None if cordoned is None else tuple(map(bytes, cordoned)),
        record.is_migrating_zk_broker,
        offset,
    )


def merge_broker(current: Broker, record: BrokerRegistrationChangeRecord) -> Broker:
    """What a BrokerRegistrationChangeRecord makes of ``current``: fields left out stay."""
    changes: dict[str, Any] = {}
    if record.fenced:
        changes["fenced"] = record.fenced > 0
    if record.in_controlled_shutdown:
        changes["in_controlled_shutdown"] = True
    if record.log_dirs:
        changes["directories"] = tuple(map(bytes, record.log_dirs))
    if record.cordoned_log_dirs is not None:
        changes["cordoned_directories"] = tuple(map(bytes, record.cordoned_log_dirs))
    return current.replace(**changes)
