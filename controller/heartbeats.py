"""Which brokers are alive: contact times, the offset each has replayed, and who may be fenced or let go.

Soft state of the active controller. A new one starts with every unfenced broker just seen, so that a failover fences
nobody who is well.
"""

from __future__ import annotations

from enum import IntEnum

from pylogd.metadata.image import ClusterImage

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
    __slots__ = ("fenced", "metadata_offset", "shutdown_offset")

    def __init__(self, fenced: bool) -> None:
        self.fenced = fenced
        self.metadata_offset = -1
        #: offset after which the broker may stop, -1 unless it is in controlled shutdown
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

    def activate(self, image: ClusterImage, now_ms: int, gone: int | None = None) -> None:
        """Starts with every unfenced broker just seen, except `gone`: the broker that shares this process and its
        locked directories is not running from before, and must not wait for its own old session to run out. When the
        others went is not known."""
        self._brokers.clear()
        self._contacts.clear()
        self.awaited.clear()
        for broker in image.brokers.values():
            self.register(broker.id, broker.fenced)
            if broker.fenced:
                self.await_return(broker.id, now_ms)
            elif broker.id != gone:
                self._contacts[(broker.id, broker.epoch)] = now_ms

    def undo(self, image: ClusterImage) -> None:
        """What was decided last could not be written: the image tells who is registered and fenced. Whoever was to be
        fenced counts as expired."""
        for broker_id in self.broker_ids():
            if broker_id not in image.brokers:
                self.remove(broker_id)
        for broker in image.brokers.values():
            tracked = self._brokers.setdefault(broker.id, _Tracked(broker.fenced))
            self._update(tracked, broker.fenced)
            if not broker.fenced:
                self._contacts.setdefault((broker.id, broker.epoch), _LONG_AGO_MS)

    def await_return(self, broker_id: int, now_ms: int) -> None:
        """The broker has just gone: for as long as its session would have lasted, it may come back."""
        self.awaited[broker_id] = now_ms + self.session_timeout_ms

    def stop_awaiting(self, now_ms: int) -> bool:
        """Time has passed; True when somebody did not come back in time."""
        late = [broker_id for broker_id, until_ms in self.awaited.items() if until_ms <= now_ms]
        for broker_id in late:
            del self.awaited[broker_id]
        return bool(late)

    def touch(self, broker_id: int, epoch: int, now_ms: int) -> None:
        """A heartbeat arrived. Recorded before anything is decided, so that a busy controller fences nobody."""
        self._contacts[(broker_id, epoch)] = now_ms

    def _expired(self, at_ms: int, now_ms: int) -> bool:
        return at_ms + self.session_timeout_ms < now_ms

    def has_session(self, broker_id: int, epoch: int, now_ms: int) -> bool:
        at_ms = self._contacts.get((broker_id, epoch))
        return at_ms is not None and not self._expired(at_ms, now_ms)

    def end_session(self, broker_id: int, epoch: int) -> None:
        """The broker of that epoch is known to be gone: a restarted one must not be refused as its double."""
        self._contacts.pop((broker_id, epoch), None)

    def take_expired(self, now_ms: int) -> tuple[int, int] | None:
        """One (broker id, epoch) whose session ran out; it is forgotten here."""
        for key, at_ms in self._contacts.items():
            if self._expired(at_ms, now_ms):
                del self._contacts[key]
                return key
        return None

    def register(self, broker_id: int, fenced: bool) -> None:
        tracked = self._brokers.get(broker_id)
        if tracked is None:
            tracked = self._brokers[broker_id] = _Tracked(fenced)
        elif tracked.fenced == fenced:
            tracked.metadata_offset = -1
        self._update(tracked, fenced)

    def _update(self, tracked: _Tracked, fenced: bool) -> None:
        tracked.fenced = fenced
        if fenced:
            tracked.shutdown_offset = -1

    def remove(self, broker_id: int) -> None:
        self._brokers.pop(broker_id, None)

    def fence(self, broker_id: int) -> None:
        tracked = self._brokers.get(broker_id)
        if tracked is not None:
            tracked.fenced = True

    def heard(self, broker_id: int, fenced: bool, metadata_offset: int) -> None:
        """The outcome of a heartbeat: the state the broker is in now and how far it has replayed."""
        tracked = self._brokers[broker_id]
        self._update(tracked, fenced)
        tracked.metadata_offset = metadata_offset
        if not fenced:
            self.awaited.pop(broker_id, None)

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

    def broker_ids(self) -> list[int]:
        return list(self._brokers)
