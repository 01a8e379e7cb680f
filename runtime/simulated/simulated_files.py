"""The file system's twin in memory: it counts every step that changes something, and can stop the world at any of them.

What survives a crash: `simulated_disk.py`. The seed decides which of the possible worlds comes back.

Steps are numbered from 1. With `crash_at = k` the k-th raises `Crash`, which nothing may catch, and so does everything
after it; `after_crash()` gives the file system that the next start finds. Faults short of a crash: `capacity_bytes`
(a full disk, which takes what still fits) and `faults` (errno by kind of step).
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator

from pylogd.runtime.clock import Clock, ManualClock
from pylogd.runtime.file_lock import FileLock, LockHeld
from pylogd.runtime.file_names import Bytes
from pylogd.runtime.files import File, FileSystem
from pylogd.runtime.simulated.simulated_disk import Directory, Node, change_bytes


class Crash(BaseException):
    """The power went. Not an Exception: no handler of ours may survive it."""


class SimulatedFile(File):
    """A `File` whose descriptor is a number that only the simulated file system knows."""

    __slots__ = ()

    _system: SimulatedFileSystem

    def close(self) -> None:
        if self._refs > 0:
            self._closing = True
            return
        self._closing = False
        self._system._close(self.fd)
        self.fd = -1
        self._map = None

    def pread(self, size: int, position: int) -> bytes:
        return bytes(self._system._node(self.open()).data[position : position + size])

    def pread_nowait(self, size: int, position: int, at_least: int = 1) -> bytes:
        return self.pread(size, position)

    def pwrite(self, data: Bytes, position: int) -> None:
        view = memoryview(data)
        while view.nbytes:
            written = self._system.pwrite(self.open(), view, position)
            position += written
            view = view[written:]

    def truncate(self, size: int) -> None:
        fd = self.open()
        self._system._step("truncate", self.path)
        node = self._system._node(fd)
        change_bytes(node.data, size)
        node.changes.append(size)

    def size(self) -> int:
        return len(self._system._node(self.open()).data)

    def fsync(self, metadata: bool = False) -> None:
        fd = self.open()
        self._system._step("fsync", self.path)
        node = self._system._node(fd)
        node.durable = bytes(node.data)
        node.changes.clear()

    def start_writeback(self, position: int, size: int) -> None:
        self.open()

    def drop_cache(self, position: int, size: int) -> None:
        self.open()

    @property
    def mapped(self) -> bool:
        return False

    def map(self) -> bytes:
        return bytes(self._system._node(self.open()).data)


class _SimulatedLock(FileLock):
    __slots__ = ("_held",)

    def __init__(self, held: set[str], path: str) -> None:
        super().__init__(-1, path)
        self._held = held

    def release(self) -> None:
        self._held.discard(self.path)


class SimulatedFileSystem(FileSystem):
    """See the module. Paths are absolute; the root exists."""

    def __init__(self, seed: int = 0, clock: Clock | None = None) -> None:
        super().__init__()
        self.pwrite = self._pwrite
        self.steps = 0
        self.crash_at: int | None = None
        self.crashed = False
        self.capacity_bytes: int | None = None
        self.faults: dict[str, int] = {}
        #: What each step was, for the message of a failing test.
        self.history: list[str] = []
        self._clock = clock if clock is not None else ManualClock()
        self._chance = random.Random(seed)
        self._root = Directory()
        self._descriptors: dict[int, Node] = {}
        self._next_descriptor = 3
        self._locks: set[str] = set()

    # -- the world and its end

    def _step(self, kind: str, path: str) -> None:
        if self.crashed:
            raise Crash(kind)
        if kind in self.faults:
            raise OSError(self.faults[kind], os.strerror(self.faults[kind]), path)
        self.steps += 1
        self.history.append(f"{kind} {path}")
        if self.steps == self.crash_at:
            self.crashed = True
            raise Crash(f"at step {self.steps}: {kind} {path}")

    def after_crash(self) -> SimulatedFileSystem:
        """What the next start finds; this file system is dead from now on."""
        self.crashed = True
        survivor = SimulatedFileSystem(self._chance.getrandbits(32), self._clock)
        survivor._root = self._root.survive(self._chance, {})
        return survivor

    def after_kill(self) -> SimulatedFileSystem:
        """What the next start finds when only the process died: all that was written, synced or not."""
        self.crashed = True
        survivor = SimulatedFileSystem(self._chance.getrandbits(32), self._clock)
        survivor._root = self._root
        return survivor

    def sync_everything(self) -> None:
        """Makes the present durable without a step: how a test begins from a known state."""
        for directory in self._directories(self._root):
            directory.sync()
            for node in directory.names.values():
                if isinstance(node, Node):
                    node.durable = bytes(node.data)
                    node.changes.clear()

    def _directories(self, directory: Directory) -> Iterator[Directory]:
        yield directory
        for node in list(directory.names.values()):
            if isinstance(node, Directory):
                yield from self._directories(node)

    # -- walking

    def _find(self, path: str) -> Node | Directory | None:
        if self.crashed:
            raise Crash(path)
        node: Node | Directory | None = self._root
        for part in path.split("/"):
            if part and part != ".":
                node = node.names.get(part) if isinstance(node, Directory) else None
        return node

    def _directory(self, path: str) -> Directory:
        node = self._find(path)
        if not isinstance(node, Directory):
            raise _missing(path)
        return node

    def _place(self, path: str) -> tuple[Directory, str]:
        parent, _, name = path.rpartition("/")
        return self._directory(parent), name

    def _node(self, fd: int) -> Node:
        if self.crashed:
            raise Crash("use of an open file")
        return self._descriptors[fd]

    def _close(self, fd: int) -> None:
        self._descriptors.pop(fd, None)

    def _used_bytes(self) -> int:
        nodes = {id(n): n for d in self._directories(self._root) for n in d.names.values() if isinstance(n, Node)}
        return sum(len(node.data) for node in nodes.values())

    # -- files

    def file(self, path: str, readonly: bool = False) -> File:
        return SimulatedFile(self, path, readonly)

    def open(self, path: str, create: bool = False, readonly: bool = False) -> File:
        file = SimulatedFile(self, path, readonly)
        file.may_create = create
        file.open()
        return file

    def _open_file(self, file: File) -> int:
        node = self._find(file.path)
        if node is None:
            if not file.may_create:
                raise _missing(file.path)
            self._step("create", file.path)
            directory, name = self._place(file.path)
            node = Node(self._clock.now_ms())
            directory.change((name, node))
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), file.path)
        file.may_create = False
        file.fd = self._next_descriptor
        self._next_descriptor += 1
        self._descriptors[file.fd] = node
        return file.fd

    def _pwrite(self, fd: int, data: Bytes, position: int) -> int:
        written = bytes(data)
        node = self._node(fd)
        if self.capacity_bytes is not None:
            room = self.capacity_bytes - self._used_bytes() + max(len(node.data) - position, 0)
            written = written[: max(room, 0)]
            if not written and len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        try:
            self._step("write", f"{len(written)} bytes at {position}")
        except Crash:
            # The write under way is as lost, torn or whole as any that was not synced.
            node.changes.append((position, written))
            raise
        change_bytes(node.data, (position, written))
        node.changes.append((position, written))
        node.modified_ms = self._clock.now_ms()
        return len(written)

    # -- names

    def rename(self, source: str, target: str) -> None:
        node = self._find(source)
        if node is None:
            raise _missing(source)
        self._step("rename", f"{source} -> {target.rpartition('/')[2]}")
        (old, old_name), (new, new_name) = self._place(source), self._place(target)
        if old is new:
            old.change((old_name, None), (new_name, node))
        else:
            new.change((new_name, node))
            old.change((old_name, None))

    def unlink(self, path: str) -> bool:
        if self._find(path) is None:
            return False
        self._step("unlink", path)
        directory, name = self._place(path)
        directory.change((name, None))
        return True

    def rmdir(self, path: str) -> None:
        if self._directory(path).names:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        self._step("rmdir", path)
        directory, name = self._place(path)
        directory.change((name, None))

    def mkdirs(self, path: str) -> None:
        built = ""
        for part in path.split("/"):
            if not part:
                continue
            parent, built = built, f"{built}/{part}"
            if self._find(built) is None:
                self._step("mkdir", built)
                self._directory(parent).change((part, Directory()))

    def listdir(self, path: str) -> list[str]:
        return sorted(self._directory(path).names)

    def scan(self, path: str) -> list[tuple[str, bool, int, int]]:
        found = []
        for name, node in sorted(self._directory(path).names.items()):
            if isinstance(node, Directory):
                found.append((name, True, 0, 0))
            else:
                found.append((name, False, len(node.data), node.modified_ms))
        return found

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def is_dir(self, path: str) -> bool:
        return isinstance(self._find(path), Directory)

    def modified_ms(self, path: str) -> int:
        node = self._find(path)
        if not isinstance(node, Node):
            raise _missing(path)
        return node.modified_ms

    def set_modified_ms(self, path: str, ms: int) -> None:
        node = self._find(path)
        if not isinstance(node, Node):
            raise _missing(path)
        node.modified_ms = ms

    def sync_dir(self, path: str) -> None:
        directory = self._directory(path)
        self._step("sync_dir", path)
        directory.sync()

    def sync_file_system(self, path: str) -> None:
        self._step("sync_file_system", path)
        self.sync_everything()

    def free_bytes(self, path: str) -> int:
        return (1 << 40) if self.capacity_bytes is None else max(self.capacity_bytes - self._used_bytes(), 0)

    def total_bytes(self, path: str) -> int:
        return (1 << 40) if self.capacity_bytes is None else self.capacity_bytes

    # -- small whole files

    def read_bytes(self, path: str) -> bytes:
        node = self._find(path)
        if not isinstance(node, Node):
            raise _missing(path)
        return bytes(node.data)

    def write_atomically(self, path: str, data: Bytes, durable: bool = True) -> None:
        aside = self.file(path + ".tmp")
        aside.truncate(0)
        aside.pwrite(data, 0)
        if durable:
            aside.fsync()
        aside.close()
        self.rename(path + ".tmp", path)
        if durable:
            self.sync_dir(path.rpartition("/")[0])

    def lock(self, path: str) -> FileLock:
        if path in self._locks:
            raise LockHeld(path)
        self.file(path).open()
        self._locks.add(path)
        return _SimulatedLock(self._locks, path)


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
