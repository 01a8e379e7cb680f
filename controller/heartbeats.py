"""Which brokers are alive: contact times, the offset each has replayed, and who may be fenced or let go.

Soft state of the active controller. A new one starts with every unfenced broker just seen, so that a failover fences
nobody who is well.

It has two sources. Who is registered and fenced follows from the log: it changes by `replay` when a record has been
appended, never when it is decided, so an append that fails leaves nothing to undo. Contacts are facts of this process:
they are noted by whoever observes them.
"""

from __future__ import annotations

from enum import IntEnum

from pylogd.metadata.image import ClusterImage
from pylogd.protocol.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from pylogd.protocol.schema import Message

_LONG_AGO_MS = -(1 << 62)


class BrokerState(IntEnum):
    """Where a broker is in its life, as the controller sees it."""

    FENCED = 0
    UNFENCED = 1
    CONTROLLED_SHUTDOWN = 2
    SHUTDOWN_NOW = 3

    @property
    def fenced(self) -> bool:
        return self in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW)


class _Tracked:
    """A registered broker."""

    __slots__ = ("epoch", "fenced", "metadata_offset", "shutdown_offset")

    def __init__(self, epoch: int, fenced: bool) -> None:
        self.epoch = epoch
        self.fenced = fenced
        self.metadata_offset = -1
        #: offset after which the broker may stop, -1 unless it is in controlled shutdown
        self.shutdown_offset = -1

    def update(self, fenced: bool) -> None:
        self.fenced = fenced
        if fenced:
            self.shutdown_offset = -1


class Heartbeats:
    """Heartbeat state of every registered broker."""

    __slots__ = ("_brokers", "_contacts", "awaited", "session_timeout_ms")

    def __init__(self, session_timeout_ms: int = 9000) -> None:
        self.session_timeout_ms = session_timeout_ms
        self._brokers: dict[int, _Tracked] = {}
        #: (broker id, epoch) -> monotonic time of the last heartbeat of that epoch
        self._contacts: dict[tuple[int, int], int] = {}
        #: Brokers that went a moment ago -> when it is no longer to be expected that they come back in a moment.
        self.awaited: dict[int, int] = {}

    def clear(self) -> None:
        """The controller is not the active one any more."""
        self._brokers.clear()
        self._contacts.clear()
        self.awaited.clear()

    def activate(self, image: ClusterImage, now_ms: int, gone: int | None = None) -> None:
        """Starts with every unfenced broker just seen, except `gone`: the broker that shares this process and its
        locked directories is not running from before, and must not wait for its own old session to run out. When the
        others went is not known."""
        self.clear()
        for broker in image.brokers.values():
            self._register(broker.id, broker.epoch, broker.fenced)
            if broker.fenced:
                self._await_return(broker.id, now_ms)
            elif broker.id != gone:
                self._contacts[(broker.id, broker.epoch)] = now_ms

    # -- what follows from the log

    def replay(self, record: Message, image: ClusterImage) -> None:
        """A record was appended, and `image` has replayed it."""
        if isinstance(record, RegisterBrokerRecord):
            self._register(record.broker_id, record.broker_epoch, record.fenced)
        elif isinstance(record, BrokerRegistrationChangeRecord):
            self._brokers[record.broker_id].update(image.brokers[record.broker_id].fenced)
        elif isinstance(record, UnregisterBrokerRecord):
            self._brokers.pop(record.broker_id, None)

    def _register(self, broker_id: int, epoch: int, fenced: bool) -> None:
        """A new process starts with nothing; one that registers once more may go on with its shutdown."""
        tracked = self._brokers.get(broker_id)
        if tracked is None or tracked.epoch != epoch:
            tracked = self._brokers[broker_id] = _Tracked(epoch, fenced)
        tracked.metadata_offset = -1
        tracked.update(fenced)

    # -- contacts

    def touch(self, broker_id: int, epoch: int, now_ms: int) -> None:
        """A heartbeat arrived. Noted before anything is decided, and whatever comes of it: the broker is alive, and a
        controller that is busy or has no room to write fences nobody for that."""
        self._contacts[(broker_id, epoch)] = now_ms

    def heard(self, broker_id: int, metadata_offset: int) -> None:
        """A heartbeat was answered: how far the broker has replayed, and that it is back if it was let back in."""
        tracked = self._brokers[broker_id]
        tracked.metadata_offset = metadata_offset
        if not tracked.fenced:
            self.awaited.pop(broker_id, None)

    def _expired(self, at_ms: int, now_ms: int) -> bool:
        return at_ms + self.session_timeout_ms < now_ms

    def has_session(self, broker_id: int, epoch: int, now_ms: int) -> bool:
        at_ms = self._contacts.get((broker_id, epoch))
        return at_ms is not None and not self._expired(at_ms, now_ms)

    def expired(self, now_ms: int) -> list[tuple[int, int]]:
        """Every (broker id, epoch) whose session has run out. It stays one until `forget_session`: when the broker
        could not be fenced, that is tried again."""
        return [key for key, at_ms in self._contacts.items() if self._expired(at_ms, now_ms)]

    def forget_session(self, broker_id: int, epoch: int) -> None:
        """Nothing is left to be done about it."""
        self._contacts.pop((broker_id, epoch), None)

    def process_gone(self, broker_id: int, epoch: int, now_ms: int) -> None:
        """The broker's process of that epoch is known to have ended. Its session is over: a restarted one must not be
        refused as its double. If it was unfenced until now it may come back in a moment."""
        self._contacts[(broker_id, epoch)] = _LONG_AGO_MS
        tracked = self._brokers.get(broker_id)
        if tracked is not None and tracked.epoch == epoch and not tracked.fenced:
            self._await_return(broker_id, now_ms)

    def _await_return(self, broker_id: int, now_ms: int) -> None:
        """For as long as the session of a broker that has gone would have lasted, it may come back."""
        self.awaited[broker_id] = now_ms + self.session_timeout_ms

    def stop_awaiting(self, now_ms: int) -> bool:
        """Time has passed; True when somebody did not come back in time."""
        late = [broker_id for broker_id, until_ms in self.awaited.items() if until_ms <= now_ms]
        for broker_id in late:
            del self.awaited[broker_id]
        return bool(late)

    # -- controlled shutdown

    def begin_shutdown(self, broker_id: int, offset: int) -> None:
        """The broker may stop once every active broker has replayed past `offset`."""
        tracked = self._brokers[broker_id]
        if not tracked.fenced and tracked.shutdown_offset < 0:
            tracked.shutdown_offset = offset

    def state(self, broker_id: int) -> BrokerState:
        tracked = self._brokers[broker_id]
        if tracked.shutdown_offset >= 0:
            return BrokerState.CONTROLLED_SHUTDOWN
        return BrokerState.FENCED if tracked.fenced else BrokerState.UNFENCED

    def is_shutting_down(self, broker_id: int) -> bool:
        tracked = self._brokers.get(broker_id)
        return tracked is not None and tracked.shutdown_offset >= 0

    def may_stop(self, broker_id: int) -> bool:
        """Every active broker has seen the records that took the leaderships of this one away."""
        active = [t.metadata_offset for t in self._brokers.values() if not t.fenced and t.shutdown_offset < 0]
        return not active or self._brokers[broker_id].shutdown_offset <= min(active)
