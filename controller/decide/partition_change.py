"""The one place that turns a wish about a partition (another ISR, a leader, replicas) into a PartitionChangeRecord.

It completes a reassignment that the wished ISR completes, elects a leader where the current one no longer qualifies,
keeps the eligible leader replicas (KIP-966: members that were in sync while the ISR fell below min.insync.replicas, and
so hold everything that was acknowledged), and bumps the leader epoch where followers rely on it. No change, no record.

When nobody in sync or eligible is left, the last leader may lead again even after a crash that may have cost it the end
of its log, as in Kafka. Behind it `last_known_elr` also remembers the others that were eligible until they crashed, for
the case that the last leader comes back with another disk: then one of them has more than it. (Kafka 4.3 would elect it
with its empty log, and the others would follow.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pylogd.controller.state import ControllerState
from pylogd.metadata import feature_levels
from pylogd.metadata.record_batches import VersionedRecord
from pylogd.metadata.registrations import NO_LEADER, NO_LEADER_CHANGE, RECOVERING, Partition
from pylogd.protocol.messages.metadata_records import PartitionChangeRecord
from pylogd.protocol.uuids import UNASSIGNED_DIRECTORY

ONLINE = "online"  # any in-sync replica; the current leader stays if it can
PREFERRED = "preferred"  # the first replica if it is in sync
UNCLEAN = "unclean"  # any live replica when no in-sync one is left: may lose records


class PartitionChange:
    """A change being put together: set the targets, then `build()`."""

    __slots__ = (
        "acceptable",
        "adding",
        "directories",
        "election",
        "elr",
        "index",
        "isr",
        "last_known_elr",
        "min_isr",
        "partition",
        "recovery_state",
        "removing",
        "replicas",
        "state",
        "topic_id",
        "unclean_shutdown",
    )

    def __init__(
        self,
        state: ControllerState,
        topic: str,
        topic_id: bytes,
        index: int,
        partition: Partition,
        acceptable: Callable[[int], bool] | None = None,
    ) -> None:
        self.state = state
        self.topic_id = topic_id
        self.index = index
        self.partition = partition
        self.min_isr = state.min_isr(topic) if state.image.elr_enabled else 1
        self.election = UNCLEAN if state.may_elect_unclean(topic, partition) else ONLINE
        self.acceptable = acceptable or state.is_active
        self.isr = list(partition.isr)
        self.replicas = list(partition.replicas)
        self.removing = list(partition.removing)
        self.adding = list(partition.adding)
        self.elr = list(partition.elr)
        self.last_known_elr = list(partition.last_known_elr)
        self.recovery_state = partition.leader_recovery_state
        self.directories = dict(zip(partition.replicas, partition.directories))
        self.unclean_shutdown: Sequence[int] = ()

    def build(self) -> VersionedRecord | None:
        partition = self.partition
        elr_enabled = self.state.image.elr_enabled
        record = PartitionChangeRecord(partition_id=self.index, topic_id=self.topic_id)

        self._complete_reassignment()
        if elr_enabled:
            self._collect_elr()
            self._collect_last_known()
        leader, unclean = self._elect()
        if leader != partition.leader:
            self._change_leader(record, leader, unclean)
        if record.leader == NO_LEADER_CHANGE and not set(partition.replicas) <= set(self.replicas):
            record.leader = partition.leader  # a removed replica must learn that its epoch is over
        self._change_in_sync(record)
        if elr_enabled:
            self._remember_leader(record, leader, unclean)
        self._assignment(record)
        if self.recovery_state != partition.leader_recovery_state:
            record.leader_recovery_state = self.recovery_state
        if not _changes_anything(record):
            return None
        return record, feature_levels.partition_record_version(self.state.image.metadata_version)

    def _change_leader(self, record: PartitionChangeRecord, leader: int, unclean: bool) -> None:
        if leader in self.elr:
            self.isr = [leader]
            self.elr.remove(leader)
        record.leader = leader
        if unclean:
            record.isr = [leader]
            if self.partition.leader_recovery_state != RECOVERING:
                record.leader_recovery_state = RECOVERING

    def _change_in_sync(self, record: PartitionChangeRecord) -> None:
        """Who is in sync, who is eligible, and the bump of the epoch where followers rely on it."""
        partition, elr_enabled = self.partition, self.state.image.elr_enabled
        if record.isr is not None or not elr_enabled:
            self.elr = []
        if self.elr != list(partition.elr):
            record.eligible_leader_replicas = self.elr
        if record.isr is None and (self.isr or elr_enabled) and self.isr != list(partition.isr):
            record.isr = self.isr
        if (
            feature_levels.epoch_bump_on_isr_shrink(self.state.image.metadata_version)
            and record.leader == NO_LEADER_CHANGE
            and record.isr is not None
            and not set(partition.isr) <= set(record.isr)
        ):
            record.leader = partition.leader

    def _remember_leader(self, record: PartitionChangeRecord, leader: int, unclean: bool) -> None:
        """Who led last, for as long as nobody does."""
        partition = self.partition
        if unclean:
            self.last_known_elr = []
        elif leader != NO_LEADER:
            self.last_known_elr = [r for r in self.last_known_elr if r not in self.isr and r not in self.elr]
        elif partition.leader in self.replicas and partition.leader not in self.last_known_elr:
            self.last_known_elr.insert(0, partition.leader)
        if self.last_known_elr != list(partition.last_known_elr):
            record.last_known_elr = self.last_known_elr

    def forget(self, replica: int) -> None:
        """`replica` begins anew with an empty log. If it is the only one there is nothing better, and it may lead."""
        if len(self.replicas) > 1 and replica in self.last_known_elr:
            self.last_known_elr.remove(replica)

    def _complete_reassignment(self) -> None:
        """Drops the removed replicas once every added one is in sync; a partition that shrinks waits for the rest."""
        if not self.removing and not self.adding:
            return
        isr = [replica for replica in self.isr if replica not in self.removing]
        replicas = [replica for replica in self.replicas if replica not in self.removing]
        if not isr or not replicas or not set(self.adding) <= set(isr):
            return
        if len(self.adding) < len(self.removing) and not set(replicas) <= set(isr):
            return
        self.isr, self.replicas, self.removing, self.adding = isr, replicas, [], []

    def _collect_elr(self) -> None:
        if len(self.isr) >= self.min_isr:
            self.elr = []
            return
        candidates = dict.fromkeys(self.elr)
        candidates.update(dict.fromkeys(self.partition.isr))
        # A replica that is removed deletes its log: should it be given back later, it comes back with nothing. (Kafka
        # 4.3 keeps it as eligible, and would let it lead.)
        self.elr = sorted(
            r for r in candidates if r in self.replicas and r not in self.isr and r not in self.unclean_shutdown
        )

    def _collect_last_known(self) -> None:
        if len(self.isr) >= self.min_isr:
            self.last_known_elr = []
            return
        partition = self.partition
        crashed = [r for r in self.unclean_shutdown if r in partition.isr or r in partition.elr]
        # The last leader comes first.
        order = [*crashed, *self.last_known_elr] if partition.leader in crashed else [*self.last_known_elr, *crashed]
        self.last_known_elr = [r for r in dict.fromkeys(order) if r in self.replicas and r not in self.isr]

    def _may_lead(self, replica: int) -> bool:
        in_sync = replica in self.isr or (not self.isr and replica in self.elr)
        return in_sync and self._is_acceptable(replica)

    def _is_acceptable(self, replica: int) -> bool:
        if not self.acceptable(replica):
            return False
        broker = self.state.image.brokers.get(replica)
        directory = self.directories.get(replica)
        # A replica that a reassignment adds in this very change has no directory yet; it cannot be in sync either.
        return broker is not None and directory is not None and broker.has_online_directory(directory)

    def _elect(self) -> tuple[int, bool]:
        """The leader this change leaves, and whether choosing it may lose acknowledged records."""
        current = self.partition.leader
        if self.election == PREFERRED and self._may_lead(self.replicas[0]):
            return self.replicas[0], False
        if self._may_lead(current):
            return current, False
        for replica in self.replicas:
            if self._may_lead(replica):
                return replica, False
        known = self.last_known_elr
        if self.state.image.elr_enabled and not self.isr and not self.elr and known and self._is_acceptable(known[0]):
            return known[0], True
        if self.election == UNCLEAN:
            for replica in self.replicas:
                if self._is_acceptable(replica):
                    return replica, True
        return NO_LEADER, False

    def _assignment(self, record: PartitionChangeRecord) -> None:
        partition = self.partition
        if self.replicas:
            if feature_levels.directory_assignment_supported(self.state.image.metadata_version):
                directories = [self._directory(replica) for replica in self.replicas]
                if directories != list(partition.directories):
                    record.directories = directories
            if self.replicas != list(partition.replicas):
                record.replicas = self.replicas
        if self.removing != list(partition.removing):
            record.removing_replicas = self.removing
        if self.adding != list(partition.adding):
            record.adding_replicas = self.adding

    def _directory(self, replica: int) -> bytes:
        known = self.directories.get(replica)
        if known is not None:
            return known
        broker = self.state.image.brokers.get(replica)
        return UNASSIGNED_DIRECTORY if broker is None else broker.default_directory()


def _changes_anything(record: PartitionChangeRecord) -> bool:
    if record.leader != NO_LEADER_CHANGE or record.leader_recovery_state != -1:
        return True
    lists = (
        record.isr,
        record.eligible_leader_replicas,
        record.last_known_elr,
        record.replicas,
        record.removing_replicas,
        record.adding_replicas,
        record.directories,
    )
    return any(value is not None for value in lists)
