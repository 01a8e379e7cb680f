"""The Fetch of a follower that keeps up with one busy partition: understood without decoding it, answered without a
plan.

While records trickle into a partition, each of its followers asks again and again the same: one partition, and apart
from the correlation id only the session's epoch and the fetch offset differ, always at the same places:

    key and version int32 | correlation id int32 | fixed | session epoch int32 | fixed | fetch offset int64 | fixed

The first such request is decoded and handled in full, and remembered as a form: the bytes that are fixed, the decoded
request and the frame of its reply. A later one of the same form that finds its follower at the leader's end only moves
the follower on and waits. When the next records come, nothing else has happened in the session, and the partition is
still led under the epoch the follower knows, the reply is one `pack` in front of them.

Whatever is not as simple as that takes the full path: before anything has changed when the request comes, and by a
`FollowerPoll` in its place when it has waited.
"""

from __future__ import annotations

import asyncio
from struct import Struct
from typing import TYPE_CHECKING, Any

from pylogd.broker.fetch.fetch_sessions import IncrementalContext, next_epoch
from pylogd.broker.fetch.poll import FollowerPoll, fetch_params
from pylogd.broker.network.templates import FixedTemplates, Layout, layout_of
from pylogd.protocol.codec import encode
from pylogd.protocol.errors import KafkaError
from pylogd.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from pylogd.protocol.wire import put_uvarint
from pylogd.runtime.files import ColdRead
from pylogd.runtime.stream import INLINE_BYTES_MAX

if TYPE_CHECKING:
    from pylogd.broker.fetch.fetch_sessions import FetchSession, FetchTarget
    from pylogd.broker.fetch.follower_view import FollowerView
    from pylogd.broker.network.context import RequestContext
    from pylogd.broker.network.dispatch import Route
    from pylogd.broker.network.templates import RepeatingConnection
    from pylogd.protocol.messages.fetch import FetchRequest
    from pylogd.replication.partition import Partition
    from pylogd.runtime.deferred import Deferred

#: Numbers by which the places of the real ones are found: session epoch and fetch offset of a request; watermark, last
#: stable offset and log start of a reply.
_EPOCH_MARK, _OFFSET_MARK = 0x5A6B7C1D, 0x1122334455667788
_int32, _int64 = Struct(">i").pack, Struct(">q").pack
_REPLY_MARKS = (0x1122334455667788, 0x2233445566778899, 0x33445566778899AA)
_REPLY_MARK_BYTES = Struct(">qqq").pack(*_REPLY_MARKS)
_set_size = Struct(">i").pack_into
#: Behind the records: no tags of the partition, the topic and the response.
_NO_TAGS = b"\x00\x00\x00"


class FetchForm:
    """One remembered request, and the reply to it that may be pending: there is never more than one."""

    __slots__ = (
        "_asked",
        "_connection",
        "_context",
        "_deadline",
        "_deferred",
        "_epoch",
        "_pack",
        "_params",
        "_partition",
        "_reply_parts",
        "_route",
        "_scheduled",
        "_session",
        "_target",
        "_throttle_ms",
        "_timer",
        "_view",
        "_wait_s",
        "caller",
        "chunks",
        "layout",
    )

    def __init__(
        self,
        connection: RepeatingConnection,
        route: Route,
        context: RequestContext,
        request: FetchRequest,
        session: FetchSession,
        view: FollowerView,
        target: FetchTarget,
        partition: Partition,
        layout: Layout,
    ) -> None:
        self._connection = connection
        self._route = route
        self._context = context
        self.caller = context.caller
        self._session = session
        self._view = view
        self._target = target
        self._partition = partition
        self._asked = request.topics[0].partitions[0]
        self._params = fetch_params(context, request)
        self._wait_s = request.max_wait_ms / 1000
        self._epoch = 0
        self._throttle_ms = 0
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._scheduled = False
        #: Of the poll that goes on in its place.
        self._deferred: Deferred | None = None
        self.layout = layout
        self.chunks: list[Any] | None = None
        answer = PartitionData(target.index, 0, *_REPLY_MARKS, aborted_transactions=None, records=b"")
        topic = FetchableTopicResponse(target.topic or "", target.topic_id, [answer])
        frame = bytearray()
        route.encode_into(frame, [], 0, FetchResponse(session_id=session.id, responses=[topic]))
        at = frame.index(_REPLY_MARK_BYTES)
        behind = at + len(_REPLY_MARK_BYTES)
        # Up to the length of the records, which is one byte where there are none.
        end = len(frame) - len(_NO_TAGS) - 1
        self._reply_parts = bytes(frame[8:at]), bytes(frame[behind:end])
        self._pack = Struct(f">ii{at - 8}sqqq{end - behind}s")

    @property
    def stale(self) -> bool:
        """Whether the session, or the partition on this broker, is another one by now."""
        session, key = self._session, self._target.key
        services = self._context.services
        return (
            services.sessions.get(session.id) is not session
            or session.view is not self._view
            or session.targets.get(key) is not self._target
            or services.replicas.by_id.get(key) is not self._partition
        )

    def may_act(self, values: tuple[Any, ...]) -> bool:
        """Whether there is nothing to say about any other partition, and the follower is at the leader's end."""
        _, epoch, _, offset, _ = values
        view, partition, target, asked = self._view, self._partition, self._target, self._asked
        return (
            self._session.epoch == epoch
            and not self.stale
            and not view.behind
            and len(view.dirty) <= (target.key in view.dirty)
            and view.watches(target, partition)
            and view.at_the_end(partition, asked.current_leader_epoch, offset, asked.last_fetched_epoch)
            and partition.followers[view.replica_id].broker_epoch == view.replica_epoch
        )

    def act(self, correlation_id: int, values: tuple[Any, ...], throttle_ms: int) -> None:
        """The follower has everything below its fetch offset; its reply waits for more."""
        offset = values[3]
        session, view, target, asked = self._session, self._view, self._target, self._asked
        context, connection = self._context, self._connection
        context.correlation_id = correlation_id
        context.services.sessions.touch(session)
        self._epoch = session.epoch = next_epoch(session.epoch)
        asked.fetch_offset = offset
        target.update(asked)
        view.fetched_ms = self._params.now_ms = now_ms = context.services.clock.monotonic_ms()
        view.dirty[target.key] = target
        view.poll = self
        self.chunks = self._deferred = None
        self._throttle_ms = throttle_ms
        connection.wait_for(self)
        self._deadline = connection.loop.time() + self._wait_s
        if self._timer is None:
            self._timer = connection.loop.call_at(self._deadline, self._expire)
        self._partition.follower_fetched(view.replica_id, view.replica_epoch, offset, asked.log_start_offset, now_ms)

    def schedule(self) -> None:
        """Some partition of the session moved; others may in the same turn."""
        if not self._scheduled:
            self._scheduled = True
            self._context.services.replicas.after_wake(self._run)

    def _run(self) -> None:
        self._scheduled = False
        if self._view.poll is self and not self._answer():
            self._poll()

    def _answer(self) -> bool:
        """Send the new records, if that is all there is to say."""
        session, view, target, partition = self._session, self._view, self._target, self._partition
        log = partition.log
        if (
            len(view.dirty) != 1
            or self._throttle_ms
            or session.epoch != self._epoch
            or self.stale
            or not partition.is_leader
            or partition.leader_epoch != target.current_leader_epoch
            or log.epochs.latest != target.last_fetched_epoch
            or view.replica_id not in partition.maximal_isr
        ):
            return False
        try:
            limit = min(target.max_bytes, self._params.max_bytes)
            found = log.read(target.fetch_offset, limit, log.log_end_offset, True, True).range
            if found is None or not self._params.min_bytes <= found.size <= INLINE_BYTES_MAX:
                return False
            records = found.file.pread_nowait(found.size, found.position, found.size)
        except (KafkaError, ColdRead):
            return False
        view.poll = None
        mark, start = log.high_watermark, log.log_start_offset
        target.answered_high_watermark = mark
        target.answered_log_start_offset = start
        before, behind = self._reply_parts
        frame = bytearray(
            self._pack.pack(0, self._context.correlation_id, before, mark, log.last_stable_offset, start, behind)
        )
        put_uvarint(frame, len(records) + 1)
        frame += records
        frame += _NO_TAGS
        _set_size(frame, 0, len(frame) - 4)
        self.chunks = [frame]
        self._connection.settled(self)
        return True

    def _expire(self) -> None:
        """The timer serves one request after the other: it is set again only when it has run out."""
        self._timer = None
        if self._view.poll is not self:
            return
        loop = self._connection.loop
        if loop.time() < self._deadline:
            self._timer = loop.call_at(self._deadline, self._expire)
        else:
            self._poll()

    def _poll(self) -> None:
        """Go on as a request that took the full path."""
        view, params = self._view, self._params
        view.poll = None
        left_ms = (self._deadline - self._connection.loop.time()) * 1000
        context = IncrementalContext(self._session, [self._target], self._epoch)
        poll = FollowerPoll(self._context, context, view, params, left_ms)
        self._deferred = deferred = poll.start(view.replan(params, nowait=True))
        deferred.listen(self._polled)

    def _polled(self, response: FetchResponse) -> None:
        self._deferred = None
        self._connection.fill(self, self._route, self._context.correlation_id, response, self._throttle_ms)

    def abandon(self) -> None:
        if self._deferred is not None:
            self._deferred.abandon()
        if self._view.poll is self:
            self._view.poll = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class RepeatedFetches(FixedTemplates[FetchForm]):
    """Their requests are of one shape: names and numbers differ, lengths do not. A form's name says which partition
    it fetches, under which leader epoch."""

    __slots__ = ()

    def form_of(
        self, context: RequestContext, frame: memoryview, position: int, request: FetchRequest, answer: Any
    ) -> tuple[Any, bytes, FetchForm] | None:
        """Of a follower's request that names one partition and waits."""
        if request.replica_state.replica_id < 0 or request.forgotten_topics_data:
            return None
        if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
            return None
        services = context.services
        session = services.sessions.get(request.session_id)
        key = (request.topics[0].topic_id, request.topics[0].partitions[0].partition)
        partition = services.replicas.by_id.get(key)
        if session is None or session.view is None or partition is None or key not in session.targets:
            return None
        name = self.name_of(frame)
        known = self._forms.get(name)
        if known is not None and known.layout.values(frame) is not None and not known.stale:
            return None
        layout = _layout(self._route, frame, position, request)
        if layout is None:
            return None
        form = FetchForm(
            self._connection,
            self._route,
            context,
            request,
            session,
            session.view,
            session.targets[key],
            partition,
            layout,
        )
        place = layout.part(1)
        shape = len(frame), place
        return shape, frame[place].tobytes(), form

    def name_of(self, frame: memoryview) -> bytes:
        if self._shape is None or len(frame) != self._shape[0]:
            return b""
        place: slice = self._shape[1]
        return frame[place].tobytes()


def _layout(route: Route, frame: memoryview, position: int, request: FetchRequest) -> Layout | None:
    """Where session epoch and fetch offset lie."""
    asked = request.topics[0].partitions[0]
    epoch, offset = request.session_epoch, asked.fetch_offset
    request.session_epoch, asked.fetch_offset = _EPOCH_MARK, _OFFSET_MARK
    body = bytes(encode(request, route.version))
    request.session_epoch, asked.fetch_offset = epoch, offset
    return layout_of(frame, position, body, [(_int32(_EPOCH_MARK), "i"), (_int64(_OFFSET_MARK), "q")])
