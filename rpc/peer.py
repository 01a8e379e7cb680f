"""A connection to another node of the cluster, as its client: requests out, responses in, in order.

The connection is opened when the first request needs it, begins with ApiVersions, and is opened again after it broke,
with a growing pause after failures. The versions are the newest both sides know, so the peer may be Apache Kafka or
another release. Requests are pipelined. Every request is answered exactly once, with the response or with a
`PeerError`. Trying again is the asker's business: only it knows whether the question still makes sense.

Handlers are called inside the turn of the loop that received the response: record data in it is a view of the receive
buffer and must not be kept.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Any

from pylogd.protocol.api import APIS, ApiKey
from pylogd.protocol.errors import ErrorCode, KafkaError, ProtocolError
from pylogd.protocol.framing import decode_response, decode_response_header, encode_request

if TYPE_CHECKING:
    from pylogd.runtime.network import Network
    from pylogd.runtime.stream import Stream

logger = logging.getLogger(__name__)

_size = Struct(">i").unpack_from
_SOFTWARE = "pylogd"
_API_VERSIONS_VERSION = 3
_BACKOFF_S_MIN = 0.05
_BACKOFF_S_MAX = 1.0
_FRAME_BYTES_MAX = 0x7FFFFFFF

#: Called with the response, or with None and the reason why there is none.
Handler = Callable[[Any, "PeerError | None"], None]


class PeerError(Exception):
    """The peer did not answer: unreachable, gone, too slow, or it does not know the API. `refused`: its host answered
    that nobody listens. `unsupported`: the request has a field that no version known to both sides can carry."""

    def __init__(self, reason: str, refused: bool = False, unsupported: bool = False) -> None:
        super().__init__(reason)
        self.refused = refused
        self.unsupported = unsupported


class _Asked:
    __slots__ = ("correlation_id", "deadline", "handler", "key", "request", "version")

    def __init__(self, key: ApiKey, request: Any, handler: Handler, version: int | None, deadline: float) -> None:
        self.key = key
        self.request = request
        self.handler = handler
        self.version = version
        self.deadline = deadline
        self.correlation_id = -1


class Peer:
    """One node at one address."""

    def __init__(
        self,
        network: Network,
        host: str,
        port: int,
        *,
        client_id: str,
        timeout_s: float = 30.0,
        backoff_s_max: float = _BACKOFF_S_MAX,
    ) -> None:
        self.host = host
        self.port = port
        self._network = network
        self._loop = network.loop
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._stream: Stream | None = None
        self._versions: dict[int, tuple[int, int]] | None = None
        #: The newest version of each API asked for that both sides know.
        self._newest: dict[int, int] = {}
        self._opening: asyncio.Task[None] | None = None
        self._queue: deque[_Asked] = deque()
        self._in_flight: deque[_Asked] = deque()
        self._correlation_id = 0
        self._timer: asyncio.Handle | None = None
        #: When the timer fires. uvloop's handle cannot be asked: it does not tell a time that has passed.
        self._timer_at = 0.0
        self._backoff_s = 0.0
        self._backoff_s_max = backoff_s_max
        self._retry_at = 0.0
        self.closed = False

    def __repr__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def connected(self) -> bool:
        return self._versions is not None

    # -- asking

    def send(
        self, request: Any, handler: Handler, *, version: int | None = None, timeout_s: float | None = None
    ) -> None:
        """Ask; `handler` is called exactly once, never before this returns. `version`: ask in this version or not at
        all."""
        asked = _Asked(
            APIS[request.API_KEY].key,
            request,
            handler,
            version,
            self._loop.time() + (self._timeout_s if timeout_s is None else timeout_s),
        )
        if self._versions is not None and not self._queue:
            self._write(asked)
            return
        self._queue.append(asked)
        self._watch()
        if self._opening is None and not self.closed:
            self._opening = self._loop.create_task(self._open())
        elif self.closed:
            self._loop.call_soon(self._lose, "the connection is closed")

    async def request(self, request: Any, *, version: int | None = None, timeout_s: float | None = None) -> Any:
        """The response; PeerError when there is none."""
        future: asyncio.Future[Any] = self._loop.create_future()

        def answered(response: Any, failure: PeerError | None) -> None:
            if not future.done():
                if failure is None:
                    future.set_result(response)
                else:
                    future.set_exception(failure)

        self.send(request, answered, version=version, timeout_s=timeout_s)
        return await future

    def version_for(self, key: ApiKey) -> int:
        """The newest version of an API both sides know. PeerError when there is none, or no connection."""
        known = self._newest.get(key)
        if known is not None:
            return known
        if self._versions is None:
            raise PeerError(f"{self} is not connected")
        api = APIS[key]
        first, last = self._versions.get(key, (0, -1))
        version = min(last, api.last)
        if version < max(first, api.first):
            raise PeerError(f"{self} does not serve {api.name} in a version known here")
        self._newest[key] = version
        return version

    def _write(self, asked: _Asked) -> None:
        assert self._stream is not None
        assert self._versions is not None
        try:
            newest = self.version_for(asked.key)
            if asked.version is None:
                asked.version = newest
            elif not self._versions[asked.key][0] <= asked.version <= newest:
                raise PeerError(f"{self} does not serve {asked.key.name} version {asked.version}")
            self._put(asked)
        except (PeerError, KafkaError) as failure:
            if isinstance(failure, PeerError):
                problem = failure
            else:
                unsupported = failure.code is ErrorCode.UNSUPPORTED_VERSION
                problem = PeerError(str(failure), unsupported=unsupported)
            self._loop.call_soon(asked.handler, None, problem)

    def _put(self, asked: _Asked) -> None:
        assert self._stream is not None
        assert asked.version is not None
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        asked.correlation_id = self._correlation_id
        chunks = encode_request(asked.key, asked.version, asked.correlation_id, self._client_id, asked.request)
        asked.request = None
        self._in_flight.append(asked)
        if self._timer is None or asked.deadline < self._timer_at:
            self._watch()
        self._stream.send(chunks)

    # -- the connection

    async def _open(self) -> None:
        try:
            pause = self._retry_at - self._loop.time()
            if pause > 0:
                await asyncio.sleep(pause)
            stream = await asyncio.wait_for(self._network.connect(self.host, self.port), self._timeout_s)
        except (OSError, TimeoutError) as error:
            self._opening = None
            self._back_off()
            self._lose(f"no connection to {self}: {error}", refused=isinstance(error, ConnectionRefusedError))
            return
        if self.closed:
            stream.close()
            return
        self._stream = stream
        stream.start(self)
        self._ask_versions()

    def _ask_versions(self) -> None:
        from pylogd.protocol.messages.api_versions import ApiVersionsRequest

        request = ApiVersionsRequest(client_software_name=_SOFTWARE, client_software_version="1")
        deadline = self._loop.time() + self._timeout_s
        self._put(_Asked(ApiKey.API_VERSIONS, request, self._greeted, _API_VERSIONS_VERSION, deadline))

    def _greeted(self, response: Any, failure: PeerError | None) -> None:
        self._opening = None
        if failure is not None:
            return
        if response.error_code:
            self._break(f"{self} refuses ApiVersions with error {response.error_code}")
            return
        self._versions = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
        self._backoff_s = 0.0
        while self._queue and self._versions is not None:
            # One by one: whoever still waits when something goes wrong is told by `_lose`.
            self._write(self._queue.popleft())

    def _back_off(self) -> None:
        self._backoff_s = min(max(2 * self._backoff_s, _BACKOFF_S_MIN), self._backoff_s_max)
        self._retry_at = self._loop.time() + self._backoff_s

    # -- answers

    def received(self, view: memoryview, start: int, end: int) -> int:
        while end - start >= 4 and self._stream is not None:
            (size,) = _size(view, start)
            if not 4 <= size <= _FRAME_BYTES_MAX:
                self._break(f"{self} sent a frame of {size} bytes")
                return end
            body = start + 4
            stop = body + size
            if stop > end:
                self._stream.want(size + 4)
                break
            try:
                self._answer(view[body:stop])
            except (ProtocolError, StructError, KafkaError) as problem:
                self._break(f"{self} sent what cannot be understood: {problem}")
                return end
            except Exception:
                # A mistake of ours. Whoever waits must not wait for ever because of it.
                logger.exception("an answer of %s could not be handled", self)
                self._break(f"an answer of {self} could not be handled")
                return end
            start = stop
        return start if self._stream is not None else end

    def _answer(self, frame: memoryview) -> None:
        if not self._in_flight:
            raise ProtocolError("a response nobody asked for")
        asked = self._in_flight[0]
        assert asked.version is not None
        if asked.key is ApiKey.API_VERSIONS and bytes(frame[4:6]) == b"\x00\x23":
            raise ProtocolError("ApiVersions is not supported")
        correlation_id, position = decode_response_header(asked.key, asked.version, frame)
        if correlation_id != asked.correlation_id:
            raise ProtocolError(f"correlation id {correlation_id} instead of {asked.correlation_id}")
        response = decode_response(asked.key, asked.version, frame, position)
        self._in_flight.popleft()
        asked.handler(response, None)

    def drained(self) -> None:
        """Nothing waits for room: requests are small."""

    def lost(self, reason: str | None) -> None:
        self._stream = None
        self._back_off()
        self._lose(f"{self} closed the connection" if reason is None else f"connection to {self} lost: {reason}")

    def _break(self, reason: str) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        self._back_off()
        self._lose(reason)

    def _lose(self, reason: str, refused: bool = False) -> None:
        """Everybody who waits is told; the next request opens a new connection."""
        self._versions = None
        self._newest.clear()
        waiting = [*self._in_flight, *self._queue]
        self._in_flight.clear()
        self._queue.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for asked in waiting:
            asked.handler(None, PeerError(reason, refused))

    # -- time-outs

    def _watch(self) -> None:
        """One timer for all: it looks at the oldest request."""
        if self._timer is not None:
            self._timer.cancel()
        oldest = min((asked.deadline for asked in (*self._in_flight, *self._queue)), default=None)
        self._timer = None
        if oldest is not None:
            self._timer_at = oldest
            self._timer = self._loop.call_at(oldest, self._check)

    def _check(self) -> None:
        self._timer = None
        now = self._loop.time()
        for asked in self._in_flight:
            if asked.deadline <= now:
                # Answers come in order: when this one does not come, none behind it does.
                self._break(f"{self} did not answer {asked.key.name} in time")
                return
        late = [asked for asked in self._queue if asked.deadline <= now]
        for asked in late:
            self._queue.remove(asked)
        self._watch()
        for asked in late:
            asked.handler(None, PeerError(f"no connection to {self} in time"))

    def close(self) -> None:
        """Hang up for good; whoever waits is told."""
        if self.closed:
            return
        self.closed = True
        if self._opening is not None and self._stream is None:
            self._opening.cancel()
        self._opening = None
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        self._lose("the connection is closed")
