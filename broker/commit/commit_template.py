"""The OffsetCommit that looks like one before: committed without decoding it again.

What a consumer commits differs from request to request only in the correlation id and, for each partition, the offset
and its leader epoch, which always lie at the same places:

    key and version int32 | correlation id int32 | still | offset int64 | leader epoch int32 | still | ...

The first request of a group is decoded and handled in full. It is remembered as a form: the bytes that stand still, the
decoded request, and the frame of its reply. A later request of the same form only puts its offsets into that request;
the group decides about it as about any other, and its reply is one `pack` when the commit is replicated.

Whatever is not as simple as that takes the full path.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any

from pylogd.broker.handlers.offset_commit import CommitReply
from pylogd.broker.network.dispatch import error_response
from pylogd.coordinators.shard.effects import Reply
from pylogd.protocol.codec import encode
from pylogd.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from pylogd.broker.network.connection import Connection
    from pylogd.broker.network.context import RequestContext
    from pylogd.broker.network.dispatch import Route
    from pylogd.coordinators.shard.effects import Effects
    from pylogd.protocol.messages.offset_commit import OffsetCommitRequest

#: Forms remembered per connection, one for each group and length of request.
_FORMS_MAX = 64
#: Requests remembered for nothing before the connection gives up: its commits never repeat.
_MISSES_MAX = 64
_OPENING_BYTES = 8
#: Offset and leader epoch by which the places of the real ones are found.
_SENTINEL = (0x1122334455667788, 0x2233445A)
_SENTINEL_BYTES = Struct(">qi").pack(*_SENTINEL)


class _Form:
    """What one remembered request stands for."""

    __slots__ = ("commits", "context", "image", "image_offset", "pack", "reply", "request", "route", "shard", "size",
                 "still", "unpack")  # fmt: skip

    def __init__(self, route: Route, context: RequestContext, request: OffsetCommitRequest, reply: CommitReply) -> None:
        self.route = route
        self.context = context
        self.request = request
        self.shard = reply.shard
        self.commits = reply.commits
        self.image = context.services.image
        self.image_offset = self.image.offset
        frame = bytearray()
        route.encode_into(frame, [], 0, reply.accepted)
        self.reply = (len(frame) - 4, bytes(frame[8:]))
        self.pack = Struct(f">ii{len(frame) - 8}s").pack

    def read(self, frame: memoryview, position: int) -> bool:
        """Find what stands still in the request's frame, whose body begins at `position`. False when it was not
        written the way our codec would, so that the places of the offsets are not known."""
        kept = [(each.partition.committed_offset, each.partition.committed_leader_epoch) for each in self.commits]
        self.put([b"", *(number for _ in self.commits for number in (*_SENTINEL, b""))])
        parts = bytes(encode(self.request, self.route.version)).split(_SENTINEL_BYTES)
        self.put([b"", *(number for each in kept for number in (*each, b""))])
        parts[0] = bytes(frame[_OPENING_BYTES:position]) + parts[0]
        self.still = tuple(parts)
        form = Struct(f">{_OPENING_BYTES}x" + "qi".join(f"{len(part)}s" for part in parts))
        self.unpack = form.unpack
        self.size = form.size
        return len(parts) == len(self.commits) + 1 and form.size == len(frame) and form.unpack(frame)[::3] == self.still

    def put(self, numbers: Any) -> None:
        """Something else, and for each partition offset, leader epoch and something else."""
        place = 1
        for commit in self.commits:
            partition = commit.partition
            partition.committed_offset = numbers[place]
            partition.committed_leader_epoch = numbers[place + 1]
            place += 3

    def decide(self, effects: Effects, reply: Any, numbers: Any) -> None:
        """As an event of the group's shard."""
        self.put(numbers)
        self.shard.state.commit(effects, reply, self.request, self.route.version, self.commits, None)

    def known(self) -> bool:
        """Whether the topics are still the ones they were: looked at when any metadata changed."""
        image = self.context.services.image
        if image is not self.image or image.offset != self.image_offset:
            if any(image.topic_by_id(commit.topic_id) is None for commit in self.commits):
                return False
            self.image, self.image_offset = image, image.offset
        return True


class WaitingReply(Reply):
    """The reply to a repeated commit, with its place in the connection's order."""

    __slots__ = ("_connection", "_correlation_id", "_form", "chunks")

    def __init__(self, connection: Connection, form: _Form, correlation_id: int) -> None:
        self._connection = connection
        self._form = form
        self._correlation_id = correlation_id
        self.chunks: list[Any] | None = None

    def resolve(self, response: Any) -> None:
        if self.chunks is not None:
            return
        form = self._form
        if response is None:
            size, still = form.reply
            self.chunks = [form.pack(size, self._correlation_id, still)]
        else:
            frame = bytearray()
            form.route.encode_into(frame, [], self._correlation_id, response)
            self.chunks = [frame]
        self._connection.settled(self)

    def refuse(self, code: ErrorCode, message: str | None) -> Any:
        form = self._form
        return error_response(form.route, form.context, form.request, code, message)

    @property
    def deferred(self) -> WaitingReply:
        """What is told when the connection has gone."""
        return self

    def abandon(self) -> None:
        """The coordinator may still resolve it; the connection no longer listens."""


class RepeatedCommits:
    """The remembered forms of one connection."""

    __slots__ = ("_connection", "_forms", "_misses")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._forms: dict[bytes, _Form] = {}
        self._misses = 0

    def learn(
        self, route: Route, context: RequestContext, frame: memoryview, position: int, request: Any, reply: CommitReply
    ) -> None:
        """Remember a request that was just handed to its group, unless part of it was refused."""
        if self._misses > _MISSES_MAX:
            return
        if any(answer.error_code for topic in reply.accepted.topics for answer in topic.partitions):
            return
        self._misses += 1
        form = _Form(route, context, request, reply)
        if form.read(frame, position):
            if len(self._forms) >= _FORMS_MAX:
                self._forms.clear()
            self._forms[_name(frame, position, route.request_tagged)] = form

    def run(self, frame: memoryview, position: int, correlation_id: int, route: Route) -> bool:
        """Commit a request of a remembered form; False when it is none."""
        form = self._forms.get(_name(frame, position, route.request_tagged))
        if form is None or form.route is not route or form.size != len(frame):
            return False
        numbers = form.unpack(frame)
        shard = form.shard
        if numbers[::3] != form.still or not shard.active or not form.known():
            return False
        self._misses = 0
        connection = self._connection
        reply = WaitingReply(connection, form, correlation_id)
        connection.wait_for(reply)
        shard.submit_repeated(form, numbers, reply)
        return True


def _name(frame: memoryview, position: int, flexible: bool) -> bytes:
    """What a form is found by: the group id with its length, or the beginning of a very long one."""
    try:
        first = frame[position]
        end = position + (first if flexible else 2 + (first << 8) + frame[position + 1])
    except IndexError:
        return b""
    return frame[position:end].tobytes()
