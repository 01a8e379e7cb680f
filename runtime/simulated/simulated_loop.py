"""Virtual time: several processes of a simulated cluster, each with an event loop of its own, in one order of events.

`World` has one queue of events by time and time of arrival. Nothing waits: when an event is done, time jumps to the
next. Every process has a `SimulatedLoop`, which is an asyncio loop to the code that runs on it, so a process can be
killed (its callbacks and timers never run), or stopped and continued (they run late, in their order) without its help.
A dead process can do nothing any more: what it schedules from `finally` blocks is dropped.

The same seed gives the same order: ties are broken by arrival, and chance comes from `World.chance` alone.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import inspect
from asyncio import events
from collections.abc import Callable
from random import Random
from typing import Any

from pylogd.runtime.clock import Clock

#: Wall time at the beginning of every world.
_EPOCH_MS = 1_700_000_000_000


class World:
    """Time, chance, and the queue of all that will happen."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.chance = Random(seed)
        self.steps = 0
        self._queue: list[tuple[float, int, SimulatedLoop | None, Any]] = []
        self._sequence = 0
        #: Called after every event of a process, with its loop: where invariants are checked.
        self.observer: Callable[[SimulatedLoop], None] | None = None
        #: Told of errors that nobody handled, with the loop they happened on.
        self.on_error: Callable[[SimulatedLoop, dict[str, Any]], None] | None = None

    def at(self, when: float, event: Callable[[], object]) -> None:
        """Something that happens outside every process: on the wire, to a disk, to a power supply."""
        self._push(when, None, event)

    def after(self, delay: float, event: Callable[[], object]) -> None:
        self._push(self.now + delay, None, event)

    def _push(self, when: float, loop: SimulatedLoop | None, event: Any) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (max(when, self.now), self._sequence, loop, event))

    def run_until(self, end: float, done: Callable[[], bool] | None = None) -> bool:
        """Lets time pass until `end`, or until `done` says so after some event; whether it did."""
        queue = self._queue
        while queue and queue[0][0] <= end:
            self.now, _, loop, event = heapq.heappop(queue)
            if loop is None:
                event()
            elif not loop.run(event):
                continue
            self.steps += 1
            if done is not None and done():
                return True
        self.now = max(self.now, end)
        return False


class SimulatedClock(Clock):
    """The time of the world on one machine, whose wall clock may be wrong."""

    __slots__ = ("_world", "skew_ms")

    def __init__(self, world: World, skew_ms: int = 0) -> None:
        self._world = world
        self.skew_ms = skew_ms

    def now_ms(self) -> int:
        return _EPOCH_MS + self.skew_ms + int(self._world.now * 1000)

    def monotonic_ms(self) -> int:
        return int(self._world.now * 1000)


class SimulatedLoop(asyncio.BaseEventLoop):
    """The event loop of one process."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.dead = False
        super().__init__()
        self._stopped = False
        self._late: list[asyncio.Handle] = []

    def __repr__(self) -> str:
        return f"<SimulatedLoop {self.name}>"

    # -- the process

    def kill(self) -> None:
        """The process ends here, between two instructions if need be."""
        self.dead = True
        self._late.clear()
        for task in asyncio.all_tasks(self):
            self._forget(task)

    @staticmethod
    def _forget(task: asyncio.Task[Any]) -> None:
        """The task never runs again, and asyncio shall not warn about it."""
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        coroutine = task.get_coro()
        if inspect.iscoroutine(coroutine) and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
            coroutine.close()

    def stop_process(self) -> None:
        """SIGSTOP."""
        self._stopped = True

    def continue_process(self) -> None:
        """SIGCONT: what was due meanwhile happens now."""
        self._stopped = False
        late, self._late = self._late, []
        for handle in late:
            self.world._push(self.world.now, self, handle)

    @property
    def stopped(self) -> bool:
        return self._stopped

    def run(self, handle: asyncio.Handle) -> bool:
        """One callback, as if this loop were the running one; False when there was nothing to do."""
        if self.dead or handle.cancelled():
            return False
        if self._stopped:
            self._late.append(handle)
            return False
        events._set_running_loop(self)
        try:
            handle._run()
        finally:
            events._set_running_loop(None)
        observer = self.world.observer
        if observer is not None:
            observer(self)
        return True

    # -- what asyncio asks of a loop

    def time(self) -> float:
        return self.world.now

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = super().create_task(coro, **options)
        if self.dead:
            self._forget(task)
        return task

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self.dead:
            self.world._push(self.world.now, self, handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        if when <= self.world.now:
            # As in uvloop: this handle cannot be asked when it fires.
            return self.call_soon(callback, *args, context=context)  # type: ignore[return-value]
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if not self.dead:
            self.world._push(when, self, handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.world.now + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It stays in the queue and is passed over."""

    def get_debug(self) -> bool:
        return False

    def is_closed(self) -> bool:
        return self.dead

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.dead and self.world.on_error is not None:
            self.world.on_error(self, context)
