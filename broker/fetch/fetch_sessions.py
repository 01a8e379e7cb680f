"""Fetch sessions (KIP-227): the broker remembers what a client fetches, so that a request names only what changed and a
response carries only partitions with something new.

A session has an epoch that both sides count up; a request out of step is refused and the client starts over. The number
of sessions is bounded: a new one takes the place of one unused for two minutes, or of a less valuable one (followers'
sessions are worth more than consumers', larger ones more than smaller), or the client goes without.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pylogd.protocol.errors import ErrorCode
from pylogd.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData

if TYPE_CHECKING:
    from random import Random

    from pylogd.broker.fetch.follower_view import FollowerView
    from pylogd.metadata.image import ClusterImage
    from pylogd.runtime.clock import Clock

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EVICTION_MS = 120_000
_INT32_MAX = 0x7FFFFFFF

Key = tuple[Any, int]
Answer = tuple["FetchTarget", PartitionData]


def next_epoch(epoch: int) -> int:
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == _INT32_MAX else epoch + 1


class FetchTarget:
    """One partition to read: what the client asked, and what it was told last."""

    __slots__ = (
        "answered_high_watermark",
        "answered_log_start_offset",
        "current_leader_epoch",
        "fetch_offset",
        "index",
        "key",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str | None, topic_id: bytes, by_id: bool, asked: Any) -> None:
        #: None while nobody knows the name of the id.
        self.topic = topic
        self.topic_id = topic_id
        self.index: int = asked.partition
        self.key: Key = (topic_id if by_id else topic, asked.partition)
        self.answered_high_watermark = -1
        self.answered_log_start_offset = -1
        self.update(asked)

    def update(self, asked: Any) -> None:
        self.fetch_offset: int = asked.fetch_offset
        self.max_bytes: int = asked.partition_max_bytes
        # Any negative epoch means that the client does not know.
        self.current_leader_epoch: int = max(asked.current_leader_epoch, -1)
        self.last_fetched_epoch: int = asked.last_fetched_epoch
        self.log_start_offset: int = asked.log_start_offset

    def note(self, answer: PartitionData) -> bool:
        """Remember what the client is told; whether it needs to be told at all."""
        changed = (
            len(answer.records or b"") > 0
            or answer.high_watermark != self.answered_high_watermark
            or answer.log_start_offset != self.answered_log_start_offset
            or answer.preferred_read_replica != -1
            or answer.error_code != 0
            or answer.diverging_epoch.epoch >= 0
        )
        # After an error the partition is told again as soon as the error is gone, changed or not.
        self.answered_high_watermark = -1 if answer.error_code else answer.high_watermark
        self.answered_log_start_offset = answer.log_start_offset
        return changed


class FetchSession:
    """What one client fetches."""

    __slots__ = ("by_id", "created_ms", "epoch", "id", "last_used_ms", "privileged", "size", "targets", "view")

    def __init__(
        self, session_id: int, targets: dict[Key, FetchTarget], by_id: bool, privileged: bool, now_ms: int
    ) -> None:
        self.id = session_id
        self.targets = targets
        self.by_id = by_id
        self.privileged = privileged
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.size = len(targets)
        #: A follower's session knows which of its partitions have something new.
        self.view: FollowerView | None = None

    def close(self) -> None:
        if self.view is not None:
            self.view.close()


class FetchSessions:
    """All sessions of the broker, least recently used first."""

    def __init__(self, slots_max: int, clock: Clock, chance: Random) -> None:
        self.slots_max = slots_max
        self.evictions = 0
        self._clock = clock
        self._chance = chance
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int) -> FetchSession | None:
        return self._sessions.get(session_id)

    def remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def remove_older(self, replica_id: int, replica_epoch: int) -> None:
        """A follower came back as a new incarnation: what its earlier ones fetched is over."""
        for session in list(self._sessions.values()):
            view = session.view
            if view is not None and view.replica_id == replica_id and view.replica_epoch != replica_epoch:
                self.remove(session.id)

    def touch(self, session: FetchSession) -> None:
        session.last_used_ms = self._clock.monotonic_ms()
        session.size = len(session.targets)
        self._sessions[session.id] = self._sessions.pop(session.id)

    def create(self, targets: Iterable[FetchTarget], by_id: bool, privileged: bool) -> int:
        """A new session's id, or 0 when every place is taken by a more valuable one."""
        now_ms = self._clock.monotonic_ms()
        remembered = {target.key: target for target in targets}
        if len(self._sessions) >= self.slots_max and not self._evict(privileged, len(remembered), now_ms):
            return NO_SESSION
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._chance.randint(1, _INT32_MAX)
        self._sessions[session_id] = FetchSession(session_id, remembered, by_id, privileged, now_ms)
        return session_id

    def _evict(self, privileged: bool, size: int, now_ms: int) -> bool:
        sessions = self._sessions
        oldest = next(iter(sessions.values()), None)
        if oldest is None:
            return False
        victim: FetchSession | None
        if now_ms - oldest.last_used_ms > EVICTION_MS:
            victim = oldest
        else:
            # A young session is protected from its equals; a follower may take any consumer's place.
            evictable = (
                session
                for session in sessions.values()
                if now_ms - session.created_ms > EVICTION_MS or (privileged and not session.privileged)
            )
            victim = min(evictable, key=lambda s: (s.privileged, s.size, s.id), default=None)
            if victim is None or (privileged, size, 0) < (victim.privileged, victim.size, victim.id):
                return False
        self.remove(victim.id)
        self.evictions += 1
        return True


class FetchContext:
    """What one Fetch request reads and how its answers become a response. This one has no session."""

    __slots__ = ("_targets",)

    def __init__(self, targets: dict[Key, FetchTarget]) -> None:
        self._targets = targets

    #: Set when the session itself is refused; nothing is read then.
    error: ErrorCode | None = None

    def targets(self) -> Iterator[FetchTarget]:
        return iter(self._targets.values())

    def respond(self, answers: list[Answer]) -> FetchResponse:
        return FetchResponse(session_id=NO_SESSION, responses=group(answers))


class RefusedContext(FetchContext):
    """Unknown session, or out of step."""

    __slots__ = ("error",)

    def __init__(self, error: ErrorCode) -> None:
        super().__init__({})
        self.error = error

    def respond(self, answers: list[Answer]) -> FetchResponse:
        assert self.error is not None
        return FetchResponse(error_code=int(self.error), session_id=NO_SESSION)


class FullContext(FetchContext):
    """The first request of a session: everything is answered, and remembered if there is room."""

    __slots__ = ("_by_id", "_privileged", "_sessions")

    def __init__(self, sessions: FetchSessions, targets: dict[Key, FetchTarget], by_id: bool, privileged: bool) -> None:
        super().__init__(targets)
        self._sessions = sessions
        self._by_id = by_id
        self._privileged = privileged

    def respond(self, answers: list[Answer]) -> FetchResponse:
        for target, answer in answers:
            target.note(answer)
        session_id = self._sessions.create((target for target, _ in answers), self._by_id, self._privileged)
        return FetchResponse(session_id=session_id, responses=group(answers))


class IncrementalContext(FetchContext):
    """A later request of a session."""

    __slots__ = ("_epoch", "_session", "named")

    def __init__(self, session: FetchSession, named: list[FetchTarget], epoch: int) -> None:
        super().__init__(session.targets)
        self._session = session
        #: The one the session's next request will have, unless another connection uses it as well.
        self._epoch = epoch
        #: The partitions this request says something about.
        self.named = named

    @property
    def session(self) -> FetchSession:
        return self._session

    def respond(self, answers: list[Answer]) -> FetchResponse:
        session = self._session
        if session.epoch != self._epoch:
            # Another request of the session overtook this one while it waited.
            return FetchResponse(error_code=int(ErrorCode.INVALID_FETCH_SESSION_EPOCH), session_id=session.id)
        told = []
        targets = session.targets
        for target, answer in answers:
            if targets.get(target.key) is not target or not target.note(answer):
                continue
            told.append((target, answer))
            if len(answer.records or b"") > 0:
                # To the end of the line, so that every partition gets its share of max_bytes.
                targets[target.key] = targets.pop(target.key)
        return FetchResponse(session_id=session.id, responses=group(told))


def open_context(
    sessions: FetchSessions, image: ClusterImage, version: int, request: FetchRequest, privileged: bool
) -> FetchContext:
    """Find, start or refuse the session of a request."""
    by_id = version >= 13
    if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        # A full request ends whatever session it names.
        if request.session_id != NO_SESSION:
            sessions.remove(request.session_id)
        targets = _targets(image, request, by_id)
        if request.session_epoch == FINAL_EPOCH:
            return FetchContext(targets)
        return FullContext(sessions, targets, by_id, privileged)
    session = sessions.get(request.session_id)
    if session is None:
        return RefusedContext(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    if session.epoch != request.session_epoch:
        return RefusedContext(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    if session.by_id != by_id:
        return RefusedContext(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
    named = _update(image, session, request, by_id)
    if not session.targets:
        sessions.remove(session.id)
        return FetchContext({})
    sessions.touch(session)
    session.epoch = next_epoch(session.epoch)
    if by_id:
        for target in session.targets.values() if session.view is None else session.view.dirty.values():
            if target.topic is None:
                target.topic = _topic_name(image, target.topic_id)
    return IncrementalContext(session, named, session.epoch)


def _targets(image: ClusterImage, request: FetchRequest, by_id: bool) -> dict[Key, FetchTarget]:
    targets: dict[Key, FetchTarget] = {}
    for topic in request.topics:
        name = _topic_name(image, topic.topic_id) if by_id else topic.topic
        for asked in topic.partitions:
            target = FetchTarget(name, topic.topic_id, by_id, asked)
            targets[target.key] = target
    return targets


def _update(image: ClusterImage, session: FetchSession, request: FetchRequest, by_id: bool) -> list[FetchTarget]:
    targets = session.targets
    named: list[FetchTarget] = []
    for topic in request.topics:
        for asked in topic.partitions:
            known = targets.get((topic.topic_id if by_id else topic.topic, asked.partition))
            if known is not None:
                known.update(asked)
                named.append(known)
            else:
                name = _topic_name(image, topic.topic_id) if by_id else topic.topic
                target = FetchTarget(name, topic.topic_id, by_id, asked)
                targets[target.key] = target
                named.append(target)
    view = session.view
    for forgotten in request.forgotten_topics_data:
        for index in forgotten.partitions:
            key = (forgotten.topic_id if by_id else forgotten.topic, index)
            gone = targets.pop(key, None)
            if view is not None:
                view.forget(key)
            if gone in named:
                named.remove(gone)
    return named


def _topic_name(image: ClusterImage, topic_id: bytes) -> str | None:
    topic = image.topic_by_id(topic_id)
    return None if topic is None else topic.name


def group(answers: list[Answer]) -> list[FetchableTopicResponse]:
    """Partitions of one topic that follow each other share an entry; the order is that of the request."""
    topics: list[FetchableTopicResponse] = []
    last: Any = None
    for target, answer in answers:
        key = target.key[0]
        if last is None or key != last:
            last = key
            topics.append(FetchableTopicResponse(target.topic or "", target.topic_id, []))
        topics[-1].partitions.append(answer)
    return topics
