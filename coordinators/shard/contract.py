"""What a shard asks of those who use it: the state of a kind of coordinator, and events that many requests share.

A decision is a plain function of the state and an `Effects`: it looks, and says what shall happen with
`effects.write(key, value, version)` (value None is a tombstone; the state has changed when it returns),
`effects.answer(reply, response)` now or in a later event (a parked JoinGroup), `effects.after(name, delay_ms, event)`
and `effects.cancel(name)`. `effects.now_ms` is the time. KafkaError raised by an event before it wrote anything
becomes the answer of its reply; the timers it has set by then are set. Soft state (who is parked, deadlines) may be
changed by the decision itself, durable state only by `replay`. Records of one event stay in one batch unless
`effects.atomic = False`.

A handler asks:

    shard = groups.shard_of(group_id)           # KafkaError NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, ...
    reply = Reply(lambda code, message: MyResponse(error_code=code))
    shard.submit(lambda effects: shard.state.decide(effects, reply, ...), reply)
    return reply                                # a Deferred

`submit(..., writes=False)` is for events that never write, or change nothing but timers before they do: they run even
while too few replicas are in sync, and only what they write is refused. `submit(..., producer=(id, epoch))` is for
records of a transaction, which get a batch of their own, `end_transaction` for its marker, `submit_repeated` for events
that many requests repeat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pylogd.coordinators.shard.effects import AwaitedReply, Effects, ReplayedState
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

    def decide(self, effects: Effects, reply: AwaitedReply, given: Any) -> None: ...
