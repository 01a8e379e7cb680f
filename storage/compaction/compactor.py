"""Who runs compaction jobs: a spawned process in production, the caller itself in tests and simulations."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from pylogd.storage.environment import StorageEnvironment

if TYPE_CHECKING:
    from pylogd.runtime.processes import Child
    from pylogd.storage.compaction.compaction_job import CleanedGroup, CompactionJob

_WORKER_MODULE = "pylogd.storage.compaction.compaction_worker"

Swap = Callable[["CleanedGroup"], bool]


class CompactionFailed(Exception):
    """The log cannot be compacted: its bytes are not what they should be, or the worker died over it."""


class Compactor(Protocol):
    async def run(self, job: CompactionJob, swap: Swap) -> bool:
        """Offers every finished group to `swap`, which returns False to stop; True when all were taken.
        CompactionFailed when the log is at fault, OSError when the disk is."""

    async def close(self) -> None:
        """Gives the process and its memory back; `run` starts another."""


class InlineCompactor:
    def __init__(self, environment: StorageEnvironment) -> None:
        self._environment = environment

    async def run(self, job: CompactionJob, swap: Swap) -> bool:
        from pylogd.storage.compaction.compaction import compact

        groups = compact(self._environment, job, lambda size: None)
        return all(swap(group) for group in groups)

    async def close(self) -> None:
        """Holds nothing."""


class ProcessCompactor:
    """Started with its first job, so that a broker without compacted topics never pays for it."""

    def __init__(self) -> None:
        self._child: Child | None = None

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    async def run(self, job: CompactionJob, swap: Swap) -> bool:
        from pylogd.runtime.processes import Child, ChildDied

        child = self._child
        if child is None or not child.alive:
            child = self._child = await Child.start(_WORKER_MODULE)
        try:
            await child.send(job)
            taken = True
            while True:
                kind, *facts = await child.receive()
                if kind == "group":
                    taken = swap(facts[0])
                    await child.send(taken)
                elif kind == "done":
                    return taken
                elif kind == "failed":
                    raise OSError(facts[0], facts[1])
                else:
                    raise CompactionFailed(facts[0])
        except ChildDied as error:
            self._child = None
            raise CompactionFailed(str(error)) from None
        except BaseException:
            # A conversation broken off in the middle cannot be resumed.
            if self._child is not None:
                self._child = None
                await child.kill()
            raise

    async def close(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            await child.close()
