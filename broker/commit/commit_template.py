"""The OffsetCommit that looks like one before: committed without decoding it again.

What a consumer commits differs from request to request only in the correlation id and, for each partition, the offset
and its leader epoch, which always lie at the same places:

    key and version int32 | correlation id int32 | fixed | offset int64 | leader epoch int32 | fixed | ...

The first request of a group is decoded and handled in full. It is remembered as a form: the bytes that are fixed, the
decoded request, and the frame of its reply. A later request of the same form only puts its offsets into that request;
the group decides about it as about any other, and its reply is one `pack` when the commit is replicated.

Whatever is not as simple as that takes the full path.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any

from pylogd.broker.commit.commit_reply import CommitReply
from pylogd.broker.network.dispatch import error_response
from pylogd.broker.network.reply_frames import frame_of
from pylogd.broker.network.templates import FixedTemplates, Layout, layout_of
from pylogd.protocol.codec import encode
from pylogd.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from pylogd.broker.network.context import RequestContext
    from pylogd.broker.network.dispatch import Route
    from pylogd.broker.network.templates import RepeatingConnection
    from pylogd.coordinators.shard.effects import AwaitedReply, Effects
    from pylogd.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse

#: Offset and leader epoch by which the places of the real ones are found.
_MARK = (0x1122334455667788, 0x2233445A)
_MARK_BYTES = Struct(">qi").pack(*_MARK)


class CommitForm:
    """One remembered request: what a group commits again and again."""

    __slots__ = (
        "_accepted",
        "_commits",
        "_connection",
        "_context",
        "_image",
        "_image_offset",
        "_pack",
        "_request",
        "_route",
        "_shard",
        "_size",
        "_tail",
        "caller",
        "layout",
    )

    #: Set as soon as the places of the numbers are known.
    layout: Layout

    def __init__(
        self,
        connection: RepeatingConnection,
        route: Route,
        context: RequestContext,
        request: OffsetCommitRequest,
        reply: CommitReply,
    ) -> None:
        self._connection = connection
        self._route = route
        self._context = context
        self.caller = context.caller
        self._request = request
        self._shard = reply.shard
        self._commits = reply.commits
        self._accepted = reply.accepted
        self._image = context.services.image
        self._image_offset = self._image.offset
        frame = bytearray()
        route.encode_into(frame, [], 0, reply.accepted)
        self._size, self._tail = len(frame) - 4, bytes(frame[8:])
        self._pack = Struct(f">ii{len(self._tail)}s").pack

    def find_numbers(self, frame: memoryview, position: int) -> bool:
        """Where offset and leader epoch of every partition lie. False when that is not known."""
        kept = [(each.partition.committed_offset, each.partition.committed_leader_epoch) for each in self._commits]
        self._put([b"", *(number for _ in self._commits for number in (*_MARK, b""))])
        body = bytes(encode(self._request, self._route.version))
        self._put([b"", *(number for each in kept for number in (*each, b""))])
        layout = layout_of(frame, position, body, [(_MARK_BYTES, "qi")] * len(self._commits))
        if layout is None:
            return False
        self.layout = layout
        return True

    def _put(self, values: Any) -> None:
        """Something else, and for each partition offset, leader epoch and something else."""
        place = 1
        for commit in self._commits:
            partition = commit.partition
            partition.committed_offset = values[place]
            partition.committed_leader_epoch = values[place + 1]
            place += 3

    def may_act(self, values: tuple[Any, ...]) -> bool:
        """Whether the shard is at work and the topics are still the ones they were: looked at when any metadata
        changed."""
        if not self._shard.active:
            return False
        image = self._context.services.image
        if image is not self._image or image.offset != self._image_offset:
            if any(image.topic_by_id(commit.topic_id) is None for commit in self._commits):
                return False
            self._image, self._image_offset = image, image.offset
        return True

    def act(self, correlation_id: int, values: tuple[Any, ...], throttle_ms: int) -> None:
        reply = PendingCommit(self, correlation_id, throttle_ms)
        self._connection.wait_for(reply)
        self._shard.submit_repeated(self, values, reply)

    def decide(self, effects: Effects, reply: AwaitedReply, values: tuple[Any, ...]) -> None:
        """As an event of the group's shard."""
        self._put(values)
        self._shard.state.commit(effects, reply, self._request, self._route.version, self._commits, None)

    def answer(self, reply: PendingCommit, response: Any) -> None:
        """`response` is None when nothing was refused."""
        number, throttle_ms = reply.correlation_id, reply.throttle_ms
        if response is None and not throttle_ms:
            reply.chunks = [self._pack(self._size, number, self._tail)]
        else:
            reply.chunks = frame_of(self._route, number, response or self._all_accepted(), throttle_ms)
        self._connection.settled(reply)

    def _all_accepted(self) -> OffsetCommitResponse:
        for commit in self._commits:
            commit.answer.error_code = 0
        return self._accepted

    def refusal(self, code: ErrorCode, message: str | None) -> Any:
        return error_response(self._route, self._request, code, message)


class PendingCommit:
    """The reply to a repeated commit, with its place in the connection's order."""

    __slots__ = ("_form", "chunks", "correlation_id", "throttle_ms")

    def __init__(self, form: CommitForm, correlation_id: int, throttle_ms: int) -> None:
        self._form = form
        self.correlation_id = correlation_id
        self.throttle_ms = throttle_ms
        self.chunks: list[Any] | None = None

    def resolve(self, response: Any) -> None:
        if self.chunks is None:
            self._form.answer(self, response)

    def refuse(self, code: ErrorCode, message: str | None) -> Any:
        return self._form.refusal(code, message)

    def fail(self, code: ErrorCode, message: str | None = None) -> None:
        self.resolve(self.refuse(code, message))

    def abandon(self) -> None:
        """The coordinator may still resolve it; the connection no longer listens."""


class RepeatedCommits(FixedTemplates[CommitForm]):
    """A form's name is the group id with its length."""

    __slots__ = ()

    def form_of(
        self, context: RequestContext, frame: memoryview, position: int, request: OffsetCommitRequest, answer: Any
    ) -> tuple[Any, bytes, CommitForm] | None:
        """Of a request that was just handed to its group, unless part of it was refused."""
        if not isinstance(answer, CommitReply):
            return None
        if any(each.error_code for topic in answer.accepted.topics for each in topic.partitions):
            return None
        form = CommitForm(self._connection, self._route, context, request, answer)
        if not form.find_numbers(frame, position):
            self._misses += 1
            return None
        return position, _group(frame, position, self._route.request_tagged), form

    def name_of(self, frame: memoryview) -> bytes:
        return b"" if self._shape is None else _group(frame, self._shape, self._route.request_tagged)


def _group(frame: memoryview, position: int, flexible: bool) -> bytes:
    """The group id with its length, or the beginning of a very long one."""
    try:
        first = frame[position]
        end = position + (first if flexible else 2 + (first << 8) + frame[position + 1])
    except IndexError:
        return b""
    return frame[position:end].tobytes()
