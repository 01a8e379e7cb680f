"""What a shard demands of its users: the state of a kind of coordinator, and events that many requests repeat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pylogd.coordinators.shard.effects import Effects, ReplayedState, Reply
from pylogd.coordinators.shard.record_pairs import RecordClasses

if TYPE_CHECKING:
    from pylogd.metadata.delta import ImageDelta
    from pylogd.metadata.image import ClusterImage


class CoordinatorState(ReplayedState, Protocol):
    """What a kind of coordinator keeps per partition. It is pure: the time, records and requests come in; what shall
    happen goes out through `Effects`."""

    @property
    def classes(self) -> RecordClasses:
        """The records it knows, by the type that opens their key."""

    def replay_end_transaction(self, producer_id: int, committed: bool) -> None:
        """The transaction of `producer_id` ended in this partition."""

    def loaded(self, effects: Effects) -> None:
        """Everything is replayed; requests come next."""

    def metadata_changed(self, effects: Effects, delta: ImageDelta, image: ClusterImage) -> None:
        """The cluster's metadata changed."""


State = TypeVar("State", bound=CoordinatorState)


class RepeatedEvent(Protocol):
    """An event for `Shard.submit_repeated`; `given` is what differs between requests. Before it writes, it changes
    nothing but timers. It writes all its records or none, and then answers."""

    def decide(self, effects: Effects, reply: Reply, given: Any) -> None: ...
