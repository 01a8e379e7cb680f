"""One client connection: requests in, replies out in request order, never more work than its limits allow.

Ordering. An API that works ahead (Produce: what is appended waits for its acknowledgement) lets the next request of its
kind start; its reply keeps its place in the queue. Every other API runs alone, as in Kafka: it starts when nothing is
pending and the kernel has taken all earlier replies, and nothing starts while it waits.

Back-pressure. Requests that may not start stay in the stream's buffer and the socket is not read: no queue of decoded
requests exists. At most PENDING_MAX replies are pending. A long frame takes its size from the memory all clients share
before it is read, and waits when that is used up.

The hot path is synchronous: a request is decoded, handled and encoded in the turn of the loop that read it, and the
replies of all requests that arrived together leave in one send. Requests that repeat are not even decoded:
`broker/network/templates.py`.
"""

from __future__ import annotations

import logging
from collections import deque
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Any

from pylogd.broker.gate.gate import ALLOWED
from pylogd.broker.network.context import CloseConnection, RequestContext
from pylogd.broker.network.dispatch import Route, error_response, failure_response
from pylogd.broker.network.pending import FullReply
from pylogd.broker.network.reply_frames import Splits, cut, frame_of, joined
from pylogd.broker.network.request_memory import FREE_BYTES, Share
from pylogd.protocol.errors import ErrorCode, ProtocolError
from pylogd.protocol.wire import skip_tags
from pylogd.rpc.caller import ANONYMOUS, Caller
from pylogd.runtime.deferred import Deferred

if TYPE_CHECKING:
    from pylogd.broker.network.pending import PendingReply
    from pylogd.broker.network.server import BoundListener
    from pylogd.broker.network.templates import Templates
    from pylogd.runtime.stream import Stream

logger = logging.getLogger(__name__)

_size = Struct(">i").unpack_from
#: Key and version as one number.
_key_and_version = Struct(">4xI").unpack_from
#: The same, correlation id, length of the client id.
_header = Struct(">Iih").unpack_from
_KEY_AND_VERSION_BYTES = 8
#: Replies that may wait for their turn before the connection is not read any further.
PENDING_MAX = 512
#: Encoded replies are handed to the kernel at this size, however many requests are still to be handled in this turn.
_FLUSH_BYTES = 1 << 16


class Connection:
    """The receiver of one stream."""

    __slots__ = (
        "_client_id_bytes",
        "_exclusive",
        "_in_turn",
        "_latest",
        "_out",
        "_splits",
        "_templates",
        "caller",
        "client_software_name",
        "client_software_version",
        "closed",
        "dispatcher",
        "gate",
        "last_active",
        "listener",
        "listener_name",
        "local_host",
        "local_port",
        "loop",
        "peer",
        "peer_host",
        "peer_port",
        "pending",
        "server",
        "share",
        "stream",
        "supported",
    )

    def __init__(self, listener: BoundListener, stream: Stream) -> None:
        self.listener = listener
        self.listener_name = listener.name
        self.server = listener.server
        self.loop = listener.server.loop
        self.dispatcher = listener.dispatcher
        self.gate = listener.dispatcher.gate
        self.supported = listener.dispatcher.supported
        self.stream = stream
        self.peer_host = stream.peer_host
        self.peer_port = stream.peer_port
        self.peer = f"{stream.peer_host}:{stream.peer_port}"
        self.local_host = stream.local_host
        self.local_port = stream.local_port
        #: Who asks, with the client id of the latest request; another one only when that changes.
        self.caller = Caller(ANONYMOUS, None, stream.peer_host, listener.name)
        self.client_software_name = "unknown"
        self.client_software_version = "unknown"
        self.last_active = self.loop.time()
        self.closed = False
        #: What it holds of the memory for long requests.
        self.share = Share(listener.server.memory, stream)
        self._client_id_bytes: bytes | None = None
        #: Replies in the order of their requests, with or without bytes yet.
        self.pending: deque[PendingReply] = deque()
        #: Nothing starts before what is pending is answered.
        self._exclusive = False
        #: Replies that are ready to leave.
        self._out = bytearray()
        self._splits: Splits = []
        #: By key and version as one number.
        self._templates: dict[int, Templates] = {}
        #: Those that answered last.
        self._latest: Templates | None = None
        self._in_turn = False

    @property
    def idle(self) -> bool:
        """Every request is answered, and every reply is with the kernel."""
        return not self.pending and not self.stream.sending

    # -- requests

    def received(self, view: memoryview, start: int, end: int) -> int:
        """Handle every whole request that may start now."""
        self._in_turn = True
        try:
            latest = self._latest
            if latest is not None and not self._exclusive and not self.stream.sending:
                # The short way: most of what busy clients send is answered here.
                done = self._repeat(latest, view, start, end)
                if done > start:
                    start, latest = done, None
            if start < end:
                start = self._serve(view, start, end, latest)
        except (ProtocolError, CloseConnection) as refusal:
            self.close(str(refusal))
        except Exception as failure:
            logger.exception("a request from %s could not be answered", self.peer)
            self.close(str(failure))
        finally:
            self._in_turn = False
        if self.closed:
            return end
        if self._out:
            self._flush()
        self.last_active = self.loop.time()
        return start

    def _repeat(self, templates: Templates, view: memoryview, start: int, end: int) -> int:
        """Answer the requests at the beginning that repeat others. Returns where another one starts."""
        pending = len(self.pending)
        room = PENDING_MAX - pending
        if room <= 0 or (pending and not templates.works_ahead):
            return start
        done = templates.run(view, start, end, self._out, room, self.server.limits.request_bytes_max)
        if done > start:
            self._latest = templates
            if self.share.held:
                self.share.give_back()
        return done

    def _serve(self, view: memoryview, start: int, end: int, tried: Templates | None) -> int:
        """Returns where the first request begins that is not whole or may not start yet. The templates `tried` have
        just refused the request at `start`."""
        stream = self.stream
        templates = self._templates
        size_max = self.server.limits.request_bytes_max
        while end - start >= 4 and not self.closed:
            if len(self._out) > _FLUSH_BYTES:
                self._flush()
            if templates and end - start >= _KEY_AND_VERSION_BYTES and not self._exclusive and not stream.sending:
                known = templates.get(_key_and_version(view, start)[0])
                if known is not None and known is not tried:
                    done = self._repeat(known, view, start, end)
                    if done > start:
                        start, tried = done, None
                        continue
            (size,) = _size(view, start)
            body = start + 4
            stop = body + size
            if stop > end or not 0 < size <= size_max:
                if self._may_read(size):
                    stream.want(size + 4)
                break
            if stream.sending or (self.pending and not self._works_ahead(view, start)):
                stream.pause()
                break
            self._handle(view[body:stop])
            start, tried = stop, None
            if self.share.held:
                self.share.give_back()
        return start

    def _works_ahead(self, view: memoryview, start: int) -> bool:
        """Whether the request that starts here may start although replies are pending."""
        return (
            not self._exclusive
            and len(self.pending) < PENDING_MAX
            and int.from_bytes(view[start + 4 : start + 6], "big") in self.dispatcher.works_ahead
        )

    def _may_read(self, size: int) -> bool:
        """Whether the unfinished frame may be read now; it waits for memory if not. False: the connection is closed."""
        size_max = self.server.limits.request_bytes_max
        if not 0 < size <= size_max:
            self.close(f"invalid request of {size} bytes (socket.request.max.bytes is {size_max})")
            return False
        if size > FREE_BYTES and not self.share.held and not self.listener.privileged:
            self.share.take(size, self.loop.time())
        return True

    def _handle(self, frame: memoryview) -> None:
        dispatcher = self.dispatcher
        try:
            key_and_version, correlation_id, length = _header(frame, 0)
        except StructError:
            raise ProtocolError("the request header is cut off") from None
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
        route = dispatcher.routes.get(key_and_version) or dispatcher.route(key_and_version)
        if route.request_tagged:
            try:
                tags = frame[position]
                position += 1
                if tags:
                    position = skip_tags(frame, position, len(frame), tags)
            except IndexError:
                raise ProtocolError("the request header is cut off") from None
        request, _ = route.decode(frame, position)
        context = RequestContext(route.version, self.caller, correlation_id, self, dispatcher.services)
        decision = self.gate.admit(self.caller, route.key, route.resources(request), len(frame))
        try:
            if decision is ALLOWED or decision.code is ErrorCode.NONE:
                response = route.handle(context, request)
            else:
                response = error_response(route, request, decision.code, None)
        except Exception as failure:
            response = failure_response(route, context, request, failure)
        if type(response) is not route.response_class:
            if response is not None:
                self._learn(route, context, frame, position, request, response)
                self._defer(route, context, request, response, decision.throttle_ms)
        elif self.pending:
            # Others are due before it.
            reply = FullReply(self, route, context, None, decision.throttle_ms)
            reply.chunks = frame_of(route, correlation_id, response, decision.throttle_ms)
            self.pending.append(reply)
        elif decision.throttle_ms:
            route.encode_throttled(self._out, self._splits, correlation_id, response, decision.throttle_ms)
            self._flush()
        else:
            route.encode_into(self._out, self._splits, correlation_id, response)
            if not route.works_ahead:
                self._flush()
                return
            self._learn(route, context, frame, position, request, response)

    def _learn(
        self, route: Route, context: RequestContext, frame: memoryview, position: int, request: Any, answer: Any
    ) -> None:
        """A request was handled: others like it may be answered without being decoded."""
        if route.load_templates is None:
            return
        key_and_version = route.key << 16 | route.version
        templates = self._templates.get(key_and_version)
        if templates is None:
            templates = self._templates[key_and_version] = route.load_templates()(self, route)
        templates.learn(context, frame, position, request, answer)

    def _learn_client_id(self, text: bytes, length: int) -> None:
        if len(text) < length:
            raise ProtocolError("the client id ends behind the request")
        try:
            self.caller = self.caller._replace(client_id=text.decode())
        except UnicodeDecodeError:
            raise ProtocolError("the client id is not UTF-8") from None
        self._client_id_bytes = text

    # -- replies that come later

    def _defer(self, route: Route, context: RequestContext, request: Any, answer: Any, throttle_ms: int) -> None:
        """The reply keeps its place until the answer is there."""
        self._exclusive = not isinstance(answer, Deferred) or answer.exclusive
        reply = FullReply(self, route, context, request, throttle_ms)
        self.pending.append(reply)
        reply.wait_for(answer)

    def wait_for(self, reply: PendingReply) -> None:
        """`reply` is the next one due; nothing else starts before it is settled."""
        self._exclusive = True
        self.pending.append(reply)

    def fill(self, reply: PendingReply, route: Route, correlation_id: int, response: Any, throttle_ms: int) -> None:
        """Encode the response of a pending reply; None when no reply is due."""
        if self.closed:
            return
        if isinstance(response, CloseConnection):
            self.close(str(response))
            return
        try:
            chunks = [] if response is None else frame_of(route, correlation_id, response, throttle_ms)
        except Exception as failure:
            logger.exception("a reply to %s could not be encoded", route.key.name)
            self.close(str(failure))
            return
        reply.chunks = chunks
        self.settled(reply)

    def admitted(self) -> None:
        """The request that held up everything behind it is under way: the next one may work ahead of its reply."""
        if not self.closed:
            self._exclusive = False
            if not self._in_turn and not self.stream.sending:
                self.stream.resume()

    def settled(self, reply: PendingReply) -> None:
        """A pending reply has its bytes: send all that are next in the order."""
        queue = self.pending
        if self.closed or queue[0] is not reply:
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
            self.stream.send(joined(ready))
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
        self.stream.send(cut(out, splits))

    def drained(self) -> None:
        self.last_active = self.loop.time()
        if not self._exclusive:
            self.stream.resume()

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
            text = "closing connection to %s (listener %s): %s"
            self.server.complain(self.peer_host, logging.WARNING, text, self.peer, self.listener_name, reason)
        self.stream.close()
        self._end()

    def _end(self) -> None:
        self.closed = True
        pending, self.pending = self.pending, deque()
        for reply in pending:
            reply.abandon()
        self._templates.clear()
        self._latest = None
        if self.share.held:
            self.share.give_back()
        self.server.forget(self)
