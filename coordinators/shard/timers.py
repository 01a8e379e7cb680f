"""Named timers of one shard.

Most are pushed back over and over (a session, at every heartbeat): that only moves their deadline, and the loop's timer
looks at it when it fires.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable

from pylogd.coordinators.shard.effects import Event


class _Timer:
    __slots__ = ("deadline", "event", "fires_at", "handle")

    def __init__(self, deadline: float, event: Event) -> None:
        self.deadline = deadline
        self.event = event
        self.fires_at = deadline
        self.handle: asyncio.TimerHandle | None = None


class Timers:
    """`run(name, event)` is called when a timer is due."""

    def __init__(self, loop: asyncio.AbstractEventLoop, run: Callable[[Hashable, Event], None]) -> None:
        self._loop = loop
        self._run = run
        self._timers: dict[Hashable, _Timer] = {}

    def set(self, name: Hashable, delay_ms: float, event: Event) -> None:
        deadline = self._loop.time() + delay_ms / 1000
        timer = self._timers.get(name)
        if timer is None:
            timer = self._timers[name] = _Timer(deadline, event)
        else:
            timer.deadline = deadline
            timer.event = event
            if timer.fires_at <= deadline:
                return
            assert timer.handle is not None
            timer.handle.cancel()
        timer.fires_at = deadline
        timer.handle = self._loop.call_at(deadline, self._fire, name, timer)

    def cancel(self, name: Hashable) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None and timer.handle is not None:
            timer.handle.cancel()

    def clear(self) -> None:
        for name in list(self._timers):
            self.cancel(name)

    def __contains__(self, name: Hashable) -> bool:
        return name in self._timers

    def _fire(self, name: Hashable, timer: _Timer) -> None:
        if timer.deadline > timer.fires_at:
            timer.fires_at = timer.deadline
            timer.handle = self._loop.call_at(timer.deadline, self._fire, name, timer)
            return
        del self._timers[name]
        self._run(name, timer.event)
