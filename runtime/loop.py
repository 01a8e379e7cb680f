"""The event loop: uvloop where it is installed, asyncio's own elsewhere.

Everything above `runtime/` sees an `asyncio.AbstractEventLoop` and uses only `time`, `call_soon`, `call_later`,
`call_at`, `create_task`, `create_future` and what this package offers, so that a virtual-time loop can take its place
in simulation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


def new_event_loop() -> asyncio.AbstractEventLoop:
    """The fastest loop this platform has."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def run(main: Callable[[asyncio.AbstractEventLoop], Coroutine[Any, Any, int]]) -> int:
    """Run `main(loop)` to its end on a fresh loop, cancel what it left behind and return its exit code."""
    loop = new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(main(loop))
    finally:
        try:
            leftovers = asyncio.all_tasks(loop)
            for task in leftovers:
                task.cancel()
            if leftovers:
                loop.run_until_complete(asyncio.gather(*leftovers, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            loop.close()
