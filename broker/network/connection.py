"""One client connection: requests in, replies out in request order, never more work than its limits allow.

Ordering. A Produce that is appended and waits for its acknowledgement lets the next Produce start; its reply keeps its
place in the queue. Every other API runs alone, as in Kafka: it starts when nothing is pending and the kernel has taken
all earlier replies, and nothing starts while it waits.

Back-pressure. Requests that may not start stay in the stream's buffer and the socket is not read: no queue of decoded
requests exists. At most PENDING_MAX Produce replies wait. A long frame takes its size from the memory all clients share
before it is read, and waits when that is used up.

The hot path is synchronous: a request is decoded, handled and encoded in the turn of the loop that read it, and the
replies of all requests that arrived together leave in one send.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Any

from pylogd.broker.network.context import CloseConnection, RequestContext
from pylogd.broker.network.dispatch import Route, failure_response
from pylogd.protocol.api import ApiKey
from pylogd.protocol.errors import ErrorCode, ProtocolError
from pylogd.protocol.wire import skip_tags
from pylogd.rpc.caller import ANONYMOUS, Caller
from pylogd.runtime.deferred import Deferred

if TYPE_CHECKING:
    from pylogd.broker.commit.commit_template import RepeatedCommits
    from pylogd.broker.commit.commit_template import WaitingReply as WaitingCommit
    from pylogd.broker.fetch.fetch_template import RepeatedFetches, WaitingFetch
    from pylogd.broker.network.server import BoundListener
    from pylogd.broker.produce.produce_template import RepeatedProduce, WaitingReply
    from pylogd.runtime.stream import Stream

logger = logging.getLogger(__name__)

_size = Struct(">i").unpack_from
#: Key and version as one number, correlation id, length of the client id.
_header = Struct(">Iih").unpack_from
#: Produce replies that may wait for their turn before the connection is not read any further.
PENDING_MAX = 512
#: Encoded replies are handed to the kernel at this size, however many requests are still to be handled in this turn.
_FLUSH_BYTES = 1 << 16
#: Frames up to this length are read without asking for a share of the memory.
_FREE_BYTES = 1 << 16
#: Once others wait for memory, a long request must arrive at this rate after the first seconds.
_ARRIVAL_BYTES_PER_S_MIN = 1 << 14
_PATIENCE_S = 5.0
_API_VERSIONS = int(ApiKey.API_VERSIONS)
_PRODUCE = b"\x00\x00"


class _Pending:
    """A reply that has its place in the order but no bytes yet."""

    __slots__ = ("chunks", "context", "deferred", "request", "route", "task")

    def __init__(self, route: Route, context: RequestContext, request: Any) -> None:
        self.route = route
        self.context = context
        self.request = request
        self.chunks: list[Any] | None = None
        self.deferred: Deferred | None = None
        self.task: asyncio.Task[Any] | None = None


class Connection:
    """The receiver of one stream."""

    __slots__ = (
        "_client_id_bytes",
        "_exclusive",
        "_forms",
        "_in_turn",
        "_out",
        "_repeated",
        "_reserved",
        "_reserved_at",
        "_splits",
        "caller",
        "client_software_name",
        "client_software_version",
        "closed",
        "dispatcher",
        "last_active",
        "listener",
        "listener_name",
        "local_host",
        "local_port",
        "loop",
        "peer",
        "peer_host",
        "pending",
        "server",
        "stream",
        "waiting_for_memory",
    )

    def __init__(self, listener: BoundListener, stream: Stream) -> None:
        self.listener = listener
        self.listener_name = listener.name
        self.server = listener.server
        self.loop = listener.server.loop
        self.dispatcher = listener.dispatcher
        self.stream = stream
        self.peer_host = stream.peer_host
        self.peer = f"{stream.peer_host}:{stream.peer_port}"
        self.local_host = stream.local_host
        self.local_port = stream.local_port
        #: Who asks, with the client id of the latest request; another one only when that changes.
        self.caller = Caller(ANONYMOUS, None, stream.peer_host, listener.name)
        self.client_software_name = "unknown"
        self.client_software_version = "unknown"
        self.last_active = self.loop.time()
        self.closed = False
        #: In the server's queue for memory.
        self.waiting_for_memory = False
        self._client_id_bytes: bytes | None = None
        #: Replies in the order of their requests, with or without bytes yet.
        self.pending: deque[_Pending | WaitingReply | WaitingCommit | WaitingFetch] = deque()
        self._exclusive = False
        self._out = bytearray()
        self._splits: list[tuple[int, Any]] = []
        self._reserved = 0
        self._reserved_at = 0.0
        #: Since the first Produce that was appended.
        self._repeated: RepeatedProduce | None = None
        #: Since the first OffsetCommit that waited for its group, and the first Fetch that waited for records.
        self._forms: dict[Route, RepeatedCommits | RepeatedFetches] = {}
        self._in_turn = False

    @property
    def idle(self) -> bool:
        """Nothing asked, nothing owed."""
        return not self.pending and not self.stream.sending

    # -- requests

    def received(self, view: memoryview, start: int, end: int) -> int:
        """Handle every whole request that may start now."""
        self._in_turn = True
        stream = self.stream
        size_max = self.server.limits.request_bytes_max
        try:
            while end - start >= 4:
                if self._repeated is not None and not self._exclusive and not stream.sending:
                    room = PENDING_MAX - len(self.pending)
                    now_ms = self.dispatcher.services.clock.now_ms()
                    done = start
                    if room > 0:
                        done = self._repeated.run(view, start, end, self._out, now_ms, room, size_max)
                    if done > start:
                        start = done
                        if self._reserved:
                            self._release_memory()
                        if len(self._out) > _FLUSH_BYTES:
                            self._flush()
                        continue
                (size,) = _size(view, start)
                body = start + 4
                stop = body + size
                if stop > end or not 0 < size <= size_max:
                    if not self._may_read(size):
                        return end
                    stream.want(size + 4)
                    break
                if stream.sending or (
                    self.pending
                    and (self._exclusive or len(self.pending) >= PENDING_MAX or view[body : body + 2] != _PRODUCE)
                ):
                    stream.pause()
                    break
                self._handle(view[body:stop])
                start = stop
                if self._reserved:
                    self._release_memory()
                if self.closed:
                    return end
        except (ProtocolError, CloseConnection) as refusal:
            self.close(str(refusal))
            return end
        except Exception as failure:
            logger.exception("a request from %s could not be answered", self.peer)
            self.close(str(failure))
            return end
        finally:
            self._in_turn = False
        if self._out:
            self._flush()
        self.last_active = self.loop.time()
        return start

    def _may_read(self, size: int) -> bool:
        """Whether the unfinished frame may be read now; it waits for memory if not. False: the connection is closed."""
        size_max = self.server.limits.request_bytes_max
        if not 0 < size <= size_max:
            self.close(f"invalid request of {size} bytes (socket.request.max.bytes is {size_max})")
            return False
        if size > _FREE_BYTES and not self._reserved and not self.listener.privileged:
            if self.server.memory.take(size):
                self._reserved = size
                self._reserved_at = self.loop.time()
            else:
                self.server.memory.wait(self)
                self.stream.pause()
        return True

    def _handle(self, frame: memoryview) -> None:
        dispatcher = self.dispatcher
        try:
            key_and_version, correlation_id, length = _header(frame, 0)
        except StructError:
            raise ProtocolError("the request header is cut off") from None
        route = dispatcher.routes.get(key_and_version)
        position = 10
        if length > 0:
            position += length
            text = bytes(frame[10:position])
            if text != self._client_id_bytes:
                self._learn_client_id(text, length)
        elif length < -1:
            raise ProtocolError(f"a client id of {length} bytes")
        else:
            client_id = "" if length == 0 else None
            if self.caller.client_id != client_id:
                self._client_id_bytes = None
                self.caller = self.caller._replace(client_id=client_id)
        if route is None:
            if key_and_version >> 16 == _API_VERSIONS:
                handler = dispatcher.supported[ApiKey.API_VERSIONS]
                if not handler.first <= key_and_version & 0xFFFF <= handler.last:
                    self._answer_unknown_api_versions(handler.first, handler.last, correlation_id)
                    return
            route = dispatcher.route(key_and_version)
        if route.request_tagged:
            try:
                tags = frame[position]
                position += 1
                if tags:
                    position = skip_tags(frame, position, len(frame), tags)
            except IndexError:
                raise ProtocolError("the request header is cut off") from None
        if route.has_forms and self._forms:
            forms = self._forms.get(route)
            if forms is not None and forms.run(frame, position, correlation_id, route):
                return
        request, _ = route.decode(frame, position)
        context = RequestContext(route.version, self.caller, correlation_id, self, dispatcher.services)
        try:
            response = route.handle(context, request)
        except Exception as failure:
            response = failure_response(route, context, request, failure)
        if type(response) is route.response_class:
            if self.pending:
                self._queue_reply(route, context, response)
                return
            route.encode_into(self._out, self._splits, correlation_id, response)
            if not route.is_produce:
                self._flush()
                return
            self._learn(key_and_version, route, frame, request, response)
            if len(self._out) > _FLUSH_BYTES:
                self._flush()
        elif response is not None:
            if route.is_produce:
                self._learn(key_and_version, route, frame, request, None)
            elif route.has_forms:
                self._learn_form(route, context, frame, position, request, response)
            self._defer(route, context, request, response)

    def _learn(self, key_and_version: int, route: Route, frame: memoryview, request: Any, response: Any) -> None:
        """A Produce was handled: others like it may be appended without being decoded."""
        if self._repeated is None:
            from pylogd.broker.produce.produce_template import RepeatedProduce

            self._repeated = RepeatedProduce(self)
        self._repeated.learn(key_and_version, route, frame, request, response)

    def _learn_form(
        self, route: Route, context: RequestContext, frame: memoryview, position: int, request: Any, reply: Any
    ) -> None:
        """A request is under way: others like it need not be decoded."""
        forms = self._forms.get(route)
        if forms is None:
            forms = self._forms[route] = _forms_of(route.key)(self)
        forms.learn(route, context, frame, position, request, reply)

    def _learn_client_id(self, text: bytes, length: int) -> None:
        if len(text) < length:
            raise ProtocolError("the client id ends behind the request")
        try:
            self.caller = self.caller._replace(client_id=text.decode())
        except UnicodeDecodeError:
            raise ProtocolError("the client id is not UTF-8") from None
        self._client_id_bytes = text

    def _answer_unknown_api_versions(self, first: int, last: int, correlation_id: int) -> None:
        """A client newer than this broker: version 0 of the reply says which versions of ApiVersions there are."""
        from pylogd.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse

        code = ErrorCode.UNSUPPORTED_VERSION
        known = ApiVersion(api_key=_API_VERSIONS, min_version=first, max_version=last)
        route = self.dispatcher.route(_API_VERSIONS << 16)
        response = ApiVersionsResponse(error_code=int(code), api_keys=[known])
        route.encode_into(self._out, self._splits, correlation_id, response)

    # -- replies that come later

    def _queue_reply(self, route: Route, context: RequestContext, response: Any) -> None:
        pending = _Pending(route, context, None)
        pending.chunks = _frame(route, context.correlation_id, response)
        self.pending.append(pending)

    def _defer(self, route: Route, context: RequestContext, request: Any, answer: Any) -> None:
        pending = _Pending(route, context, request)
        if isinstance(answer, Deferred):
            if not answer.exclusive:
                # Appended: its payload must not stay in memory while the reply waits.
                pending.request = None
            pending.deferred = answer
            self._exclusive = answer.exclusive
            self.pending.append(pending)
            answer.listen(lambda response: self.resolved(pending, response))
        elif inspect.isawaitable(answer):
            self._exclusive = True
            self.pending.append(pending)
            pending.task = asyncio.ensure_future(answer, loop=self.loop)  # type: ignore[assignment]
            assert pending.task is not None
            pending.task.add_done_callback(lambda task: self._task_done(pending, task))
        else:
            raise TypeError(f"the handler of {route.key.name} returned {type(answer).__name__}")

    def wait_for(self, reply: WaitingCommit | WaitingFetch) -> None:
        """`reply` is the next one due; nothing else starts before it is settled."""
        self._exclusive = True
        self.pending.append(reply)

    def _task_done(self, pending: _Pending, task: asyncio.Future[Any]) -> None:
        if task.cancelled():
            if not self.closed:
                self.close("a request was cancelled")
            return
        failure = task.exception()
        if failure is None:
            self.resolved(pending, task.result())
            return
        try:
            response = failure_response(pending.route, pending.context, pending.request, failure)
        except (ProtocolError, CloseConnection) as refusal:
            self.close(str(refusal))
            return
        self.resolved(pending, response)

    def resolved(self, pending: _Pending | WaitingFetch, response: Any) -> None:
        """A pending reply is known."""
        if self.closed:
            return
        if isinstance(response, CloseConnection):
            self.close(str(response))
            return
        route = pending.route
        try:
            chunks = [] if response is None else _frame(route, pending.context.correlation_id, response)
        except Exception as failure:
            logger.exception("a reply to %s could not be encoded", route.key.name)
            self.close(str(failure))
            return
        pending.chunks = chunks
        pending.request = pending.deferred = None
        self.settled(pending)

    def admitted(self) -> None:
        """The Produce that held up everything behind it is appended: the next one may work ahead of its reply."""
        if not self.closed:
            self._exclusive = False
            if not self._in_turn and not self.stream.sending:
                self.stream.resume()

    def settled(self, pending: _Pending | WaitingReply | WaitingCommit | WaitingFetch) -> None:
        """A pending reply has its bytes: send all that are next in the order."""
        queue = self.pending
        if self.closed or queue[0] is not pending:
            return
        ready: list[Any] = []
        while queue and queue[0].chunks is not None:
            ready += queue.popleft().chunks or ()
        if not queue:
            self._exclusive = False
        self.last_active = self.loop.time()
        if self._out:
            self._flush()
        if ready:
            self.stream.send(_joined(ready))
        if not self._in_turn and not self.closed and not self.stream.sending:
            self.stream.resume()

    # -- sending

    def _flush(self) -> None:
        out, splits = self._out, self._splits
        self._out = bytearray()
        if not splits:
            self.stream.send([out])
            return
        self._splits = []
        self.stream.send(_cut(out, splits))

    def drained(self) -> None:
        self.last_active = self.loop.time()
        if not self._exclusive:
            self.stream.resume()

    # -- memory

    def memory_granted(self) -> None:
        """The server has memory again; `received` takes its share."""
        self.waiting_for_memory = False
        if not self.closed:
            self.stream.resume()

    def dawdles(self, now: float) -> bool:
        """Whether it holds memory for a request that hardly arrives."""
        held_s = now - self._reserved_at
        return self._reserved > 0 and held_s > _PATIENCE_S and self.stream.buffered < held_s * _ARRIVAL_BYTES_PER_S_MIN

    def _release_memory(self) -> None:
        reserved, self._reserved = self._reserved, 0
        self.server.memory.give(reserved)

    # -- the end

    def lost(self, reason: str | None) -> None:
        if reason is not None:
            logger.debug("connection to %s lost: %s", self.peer, reason)
        self._end()

    def close(self, reason: str | None = None) -> None:
        """Hang up. A reason is logged: the peer did something that cannot be answered."""
        if self.closed:
            return
        if reason is not None:
            self.server.complain(
                self.peer_host,
                logging.WARNING,
                "closing connection to %s (listener %s): %s",
                self.peer,
                self.listener_name,
                reason,
            )
        self.stream.close()
        self._end()

    def _end(self) -> None:
        self.closed = True
        pending, self.pending = self.pending, deque()
        for reply in pending:
            if reply.deferred is not None:
                reply.deferred.abandon()
        if self._repeated is not None:
            self._repeated.close()
        self._forms.clear()
        if self._reserved:
            self._release_memory()
        self.server.forget(self)


def _forms_of(key: ApiKey) -> type[RepeatedCommits | RepeatedFetches]:
    if key is ApiKey.FETCH:
        from pylogd.broker.fetch.fetch_template import RepeatedFetches

        return RepeatedFetches
    from pylogd.broker.commit.commit_template import RepeatedCommits

    return RepeatedCommits


def _frame(route: Route, correlation_id: int, response: Any) -> list[Any]:
    out = bytearray()
    splits: list[tuple[int, Any]] = []
    route.encode_into(out, splits, correlation_id, response)
    return _cut(out, splits) if splits else [out]


def _cut(out: bytearray, splits: list[tuple[int, Any]]) -> list[Any]:
    """The buffer with the data that was not copied put into its places."""
    view = memoryview(out)
    chunks: list[Any] = []
    start = 0
    for position, data in splits:
        if position > start:
            chunks.append(view[start:position])
            start = position
        chunks.append(data)
    if start < len(out):
        chunks.append(view[start:])
    return chunks


def _joined(chunks: list[Any]) -> list[Any]:
    """Many small replies as one buffer."""
    if len(chunks) == 1 or not all(type(chunk) is bytearray for chunk in chunks):
        return chunks
    return [b"".join(chunks)]
