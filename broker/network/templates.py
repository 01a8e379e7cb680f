"""Requests that repeat: learnt from one that took the full path, matched by their bytes, answered without decoding.

Clients send the same request again and again with other numbers in it. `learn` is shown every request of an API that
was handled in full, and remembers those whose repetitions can be answered from the bytes alone; what it remembers is a
form. `run` is shown every request of that API version before anything else looks at it. It acts on those that match a
form and stops in front of the first that does not, or for which anything is not as it was. That one takes the full
path, the only place that explains errors.

An API has templates if its row in the table of handlers names a class of them. Repetitions pass the gate as everybody
does, and what was learnt under another generation of the gate is forgotten (`broker/gate/gate.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from struct import Struct
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from pylogd.broker.network.pending import ReplyingConnection

if TYPE_CHECKING:
    from pylogd.broker.network.context import RequestContext
    from pylogd.broker.network.dispatch import Dispatcher, Route
    from pylogd.broker.network.pending import PendingReply
    from pylogd.rpc.caller import Caller

#: Size, key and version as one number, correlation id.
opening = Struct(">iIi").unpack_from
#: Its bytes, and those of it without the size.
OPENING_BYTES = 12
_HEADER_BYTES = 8
#: Forms remembered of one API version on one connection.
_FORMS_MAX = 64
#: Forms remembered for nothing before the connection gives up: its requests never repeat.
_MISSES_MAX = 64


class RepeatingConnection(ReplyingConnection, Protocol):
    """What templates ask of their connection."""

    caller: Caller
    dispatcher: Dispatcher

    def wait_for(self, reply: PendingReply) -> None:
        """`reply` is the next one due; nothing else starts before it is settled."""


class Templates(ABC):
    """What one connection remembers of one API version."""

    #: Whether a repetition may start behind replies that are pending.
    works_ahead: ClassVar[bool] = False

    __slots__ = ("_connection", "_gate", "_generation", "_key_and_version", "_route")

    def __init__(self, connection: RepeatingConnection, route: Route) -> None:
        self._connection = connection
        self._route = route
        self._key_and_version = route.key << 16 | route.version
        self._gate = connection.dispatcher.gate
        self._generation = self._gate.generation

    @abstractmethod
    def learn(self, context: RequestContext, frame: memoryview, position: int, request: Any, answer: Any) -> None:
        """A request was handled: its frame without the size, where its body begins, and what the handler answered."""

    @abstractmethod
    def run(self, view: memoryview, start: int, end: int, out: bytearray, room: int, size_max: int) -> int:
        """Answer requests at the beginning of view[start:end] that match: one or more, up to some limit. Replies go to
        `out`, or to the connection's pending ones, of which there may be `room` more. Returns where the next request
        starts; that is `start` when the first one does not match."""

    @abstractmethod
    def forget(self) -> None:
        """Nothing that was learnt counts any longer."""

    def outdated(self) -> bool:
        """Whether the gate is another one; then everything is forgotten."""
        if self._gate.generation == self._generation:
            return False
        self._generation = self._gate.generation
        self.forget()
        return True


class Layout:
    """A request of fixed length: bytes that are the same every time, and numbers at fixed places between them."""

    __slots__ = ("_fixed", "_kinds", "_stride", "_unpack", "size")

    def __init__(self, fixed: list[bytes], kinds: list[str]) -> None:
        """`kinds` has the numbers behind each of `fixed` but the last, as `struct` writes them."""
        self._fixed = tuple(fixed)
        self._kinds = [*kinds, ""]
        self._stride = 1 + len(kinds[0])
        form = Struct(self._form(len(fixed)))
        self._unpack = form.unpack
        self.size = form.size

    def _form(self, count: int) -> str:
        parts = zip(self._fixed[:count], self._kinds)
        return f">{_HEADER_BYTES}x" + "".join(f"{len(part)}s{kind}" for part, kind in parts)

    def part(self, number: int) -> slice:
        """Where in the frame the bytes lie that are the same."""
        start = Struct(self._form(number)).size
        return slice(start, start + len(self._fixed[number]))

    def values(self, frame: memoryview) -> tuple[Any, ...] | None:
        """Everything in the frame in its order, the bytes that are the same as well; None if those are not the same."""
        if len(frame) != self.size:
            return None
        values = self._unpack(frame)
        return values if values[:: self._stride] == self._fixed else None


def layout_of(frame: memoryview, position: int, body: bytes, marks: list[tuple[bytes, str]]) -> Layout | None:
    """The layout of a request whose body begins at `position` in its frame. `body` is that body by our own codec with
    `marks` in the places of the numbers. None when it was not written the way our codec would, so that the places are
    not known."""
    fixed = []
    rest = bytes(frame[_HEADER_BYTES:position]) + body
    for mark, _ in marks:
        before, _, rest = rest.partition(mark)
        fixed.append(before)
    fixed.append(rest)
    if any(mark in part for mark in {mark for mark, _ in marks} for part in fixed):
        return None  # a text that looks like a mark
    layout = Layout(fixed, [kind for _, kind in marks])
    return layout if layout.values(frame) is not None else None


class Form(Protocol):
    """One remembered request."""

    layout: Layout
    #: Who sent it: the client id is one of its fixed bytes.
    caller: Caller

    def may_act(self, values: tuple[Any, ...]) -> bool:
        """Whether everything is as it was when it was learnt, so that a repetition with these values can be answered
        like it."""

    def act(self, correlation_id: int, values: tuple[Any, ...], throttle_ms: int) -> None:
        """Take the repetition; its reply is pending on the connection from now on."""


F = TypeVar("F", bound=Form)


class FixedTemplates(Templates, Generic[F]):
    """Requests with a layout, which wait for their reply alone on their connection."""

    __slots__ = ("_forms", "_misses", "_shape")

    def __init__(self, connection: RepeatingConnection, route: Route) -> None:
        super().__init__(connection, route)
        #: By name.
        self._forms: dict[bytes, F] = {}
        #: Where the name is found; all forms of a connection have it at the same place.
        self._shape: Any = None
        self._misses = 0

    @abstractmethod
    def form_of(
        self, context: RequestContext, frame: memoryview, position: int, request: Any, answer: Any
    ) -> tuple[Any, bytes, F] | None:
        """Shape, name and form of a request that can be answered without decoding it; None for any other."""

    @abstractmethod
    def name_of(self, frame: memoryview) -> bytes:
        """What tells the forms of one shape apart. It may be anything for a frame of another shape."""

    def learn(self, context: RequestContext, frame: memoryview, position: int, request: Any, answer: Any) -> None:
        self.outdated()
        if self._misses > _MISSES_MAX:
            return
        found = self.form_of(context, frame, position, request, answer)
        if found is None:
            return
        shape, name, form = found
        self._misses += 1
        if shape != self._shape or len(self._forms) >= _FORMS_MAX:
            self._forms.clear()
            self._shape = shape
        self._forms[name] = form

    def run(self, view: memoryview, start: int, end: int, out: bytearray, room: int, size_max: int) -> int:
        if end - start < OPENING_BYTES or (self._gate.generation != self._generation and self.outdated()):
            return start
        size, key_and_version, correlation_id = opening(view, start)
        stop: int = start + 4 + size
        if stop > end or size > size_max or key_and_version != self._key_and_version:
            return start
        frame = view[start + 4 : stop]
        form = self._forms.get(self.name_of(frame))
        if form is None:
            return start
        values = form.layout.values(frame)
        if values is None or not form.may_act(values):
            return start
        self._misses = 0
        throttle_ms = self._gate.admit_again(form.caller, self._route.key, size)
        form.act(correlation_id, values, throttle_ms)
        return stop

    def forget(self) -> None:
        self._forms.clear()
