"""The first write of a transaction to a partition, between the question to its coordinator and the append (KIP-890).

A transactional batch may only be appended when the coordinator knows that the partition takes part, or its marker would
never come and the transaction would hang. The answer may be late: meanwhile the transaction can end, and the next one
can begin without this partition. So the question is asked under a *guard*, an object that exists once; an end marker or
a first batch drops it, and an append whose guard is gone is refused.

The lowest sequence seen while asking is kept too: a batch behind it must not overtake one that has to ask again.
"""

from __future__ import annotations

from pylogd.protocol.batch import CONTROL_FLAG, BatchHeader
from pylogd.protocol.errors import ErrorCode, KafkaError


class Guard:
    """Compared by identity."""

    __slots__ = ("epoch", "epoch_bump", "lowest_sequence", "started_ms")

    def __init__(self, sequence: int, epoch: int, epoch_bump: bool, now_ms: int) -> None:
        self.lowest_sequence = sequence
        self.epoch = epoch
        #: The producer's epoch is raised at every end (transaction version 2): its sequences begin at 0 each time.
        self.epoch_bump = epoch_bump
        self.started_ms = now_ms

    def asked_for(self, sequence: int, epoch: int) -> None:
        if epoch > self.epoch:
            self.epoch = epoch
            self.lowest_sequence = sequence
        elif epoch == self.epoch and sequence < self.lowest_sequence:
            self.lowest_sequence = sequence


#: What an append carries whose transaction was open when it was asked about: nothing was verified, nothing needs to be.
UNVERIFIED = Guard(-1, -1, False, 0)


class Verifications:
    """The guards of one log by producer id."""

    __slots__ = ("guards",)

    def __init__(self) -> None:
        self.guards: dict[int, Guard] = {}

    def start(self, producer_id: int, sequence: int, epoch: int, epoch_bump: bool, now_ms: int) -> Guard:
        guard = self.guards.get(producer_id)
        if guard is None:
            guard = self.guards[producer_id] = Guard(sequence, epoch, epoch_bump, now_ms)
        guard.asked_for(sequence, epoch)
        return guard

    def check(self, producer_id: int, guard: Guard) -> None:
        if guard is UNVERIFIED or self.guards.get(producer_id) is not guard:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "Record was not part of an ongoing transaction")

    def check_sequence(self, header: BatchHeader, offset: int, has_batches: bool) -> None:
        """The rules for sequences while a producer is being verified."""
        guard = self.guards.get(header.producer_id)
        if guard is None:
            return
        first = header.base_sequence
        if guard.epoch_bump and first != 0 and not has_batches:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Invalid sequence number for producer {header.producer_id} at offset {offset}: {first} (incoming seq. "
                "number). Expected sequence 0 for transactions v2 idempotent producer with no existing state.",
            )
        if first > guard.lowest_sequence:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Out of order sequence number for producer {header.producer_id} at offset {offset}: {first} "
                f"(incoming seq. number), {guard.lowest_sequence} (earliest seen sequence)",
            )

    def written(self, header: BatchHeader) -> None:
        """A transactional batch, data or marker, is in the log. A marker leaves the guard of the next transaction
        alone, which in version 2 has the marker's epoch."""
        guard = self.guards.get(header.producer_id)
        if guard is None:
            return
        marker = header.attributes & CONTROL_FLAG
        if not (marker and guard.epoch_bump and guard.epoch == header.producer_epoch):
            del self.guards[header.producer_id]

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        self.guards = {
            producer_id: guard
            for producer_id, guard in self.guards.items()
            if now_ms - guard.started_ms < expiration_ms
        }
