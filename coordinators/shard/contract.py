"""What a shard asks of those who use it: the state of a kind of coordinator, and events that come in crowds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from pylogd.coordinators.shard.effects import Effects
from pylogd.coordinators.shard.record_pairs import CoordinatorRecord, RecordClasses

if TYPE_CHECKING:
    from pylogd.metadata.delta import ImageDelta
    from pylogd.metadata.image import ClusterImage


class CoordinatorState(Protocol):
    """What a kind of coordinator keeps per partition."""

    classes: RecordClasses

    def replay(self, record: CoordinatorRecord, offset: int, producer_id: int) -> None:
        """Take in a record, live or loaded: the same code, nothing else changes durable state. `producer_id` is -1
        unless the record belongs to a transaction."""

    def replay_end_transaction(self, producer_id: int, committed: bool) -> None:
        """The transaction of `producer_id` ended in this partition."""

    def loaded(self, effects: Effects) -> None:
        """Everything is replayed; requests come next."""

    def metadata_changed(self, effects: Effects, delta: ImageDelta, image: ClusterImage) -> None:
        """The cluster's metadata changed."""


class Repeated(Protocol):
    """An event for `Shard.submit_soon`: `given` is what differs from one time to the next. It changes
    nothing but timers before it writes, and writes all or nothing before it answers."""

    def decide(self, effects: Effects, reply: Any, given: Any) -> None: ...
