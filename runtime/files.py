"""Files as storage sees them: positions instead of cursors, descriptors that may be closed behind the caller's back.

A broker with thousands of partitions cannot keep every file open, so a `File` is a path that knows how to open itself.
The file system keeps at most `open_files_max` descriptors and closes the least recently used ones (second chance:
`used` is set on every use and cleared by one pass of the hand). Whoever needs a descriptor beyond the current call (a
send in flight, a worker thread) pins it with `acquire()` and gives it back with `release()`; a pinned descriptor
survives eviction, close, rename and unlink.

Threads: the event-loop thread owns the pool and is the only one that evicts, so between two of its own opens no
descriptor it holds can vanish. Worker threads open and pin, and never evict.
"""

from __future__ import annotations

import errno
import mmap
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from pylogd.runtime.file_names import Bytes, FileNames
from pylogd.runtime.system import load_sync_file_range

#: A write that fails with one of these may succeed when somebody makes room; any other error is a failing disk.
DISK_FULL_ERRORS = frozenset((errno.ENOSPC, errno.EDQUOT))

_fdatasync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)

#: sync_file_range(2): start write-out of dirty pages, do not wait for it.
_SYNC_FILE_RANGE_WRITE = 2


class ColdRead(BlockingIOError):
    """The bytes are on disk and not in memory. `range.warm()` in a worker brings them there; then ask again."""

    def __init__(self, cold: FileRange) -> None:
        super().__init__(errno.EAGAIN, "not in the page cache", cold.file.path)
        self.range = cold


class File:
    """One file. `fd` is -1 while closed; hot paths test it themselves and call `open()` when they must."""

    __slots__ = ("_closing", "_map", "_refs", "_system", "fd", "may_create", "path", "pooled", "readonly", "used")

    def __init__(self, system: FileSystem, path: str, readonly: bool) -> None:
        self._system = system
        self.path = path
        self.readonly = readonly
        #: Only the first open may create the file: a later one that finds it gone must not bring it back empty.
        self.may_create = not readonly
        self.fd = -1
        self.used = False
        #: Whether the pool's list has this file; it stays there through a close until the hand comes by.
        self.pooled = False
        self._refs = 0
        self._closing = False
        self._map: mmap.mmap | None = None

    def open(self) -> int:
        """The descriptor, opened if need be. Valid until this thread opens another file; pin it to keep it longer."""
        fd = self.fd
        if fd < 0:
            fd = self._system._open_file(self)
        self.used = True
        return fd

    def acquire(self) -> int:
        """Pins the descriptor and returns it."""
        with self._system._guard:
            self._refs += 1
        try:
            return self.open()
        except BaseException:
            with self._system._guard:
                self._refs -= 1
            raise

    def release(self) -> None:
        with self._system._guard:
            self._refs -= 1
            finish = self._closing and self._refs == 0
        if finish:
            self.close()

    @property
    def pinned(self) -> bool:
        return self._refs > 0

    def close(self) -> None:
        """Closes the descriptor and the mapping, or marks them to be closed by the last `release()`. May be opened
        again."""
        with self._system._guard:
            if self._refs > 0:
                self._closing = True
                return
            self._closing = False
            fd, self.fd = self.fd, -1
            mapping, self._map = self._map, None
        if mapping is not None:
            mapping.close()
        if fd >= 0:
            os.close(fd)

    def pread(self, size: int, position: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        fd = self.fd if self.fd >= 0 else self.open()
        data = os.pread(fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        got = len(data)
        while got < size:
            data = os.pread(fd, size - got, position + got)
            if not data:
                break
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def pread_nowait(self, size: int, position: int, at_least: int = 1) -> bytes:
        """What of it is in memory now; ColdRead when that is less than `at_least`, which must not reach beyond the end
        of the file. Reads plainly where the kernel cannot tell."""
        flags = self._system._nowait
        if not flags:
            return self.pread(size, position)
        buffer = bytearray(size)
        try:
            got = os.preadv(self.fd if self.fd >= 0 else self.open(), [buffer], position, flags)
        except OSError as error:
            if error.errno == errno.EAGAIN:
                raise ColdRead(FileRange(self, position, size)) from None
            if error.errno != errno.EOPNOTSUPP:
                raise
            self._system._nowait = 0
            return self.pread(size, position)
        if got < at_least:
            raise ColdRead(FileRange(self, position, size))
        return bytes(memoryview(buffer)[:got])

    def pwrite(self, data: Bytes, position: int) -> None:
        """Writes all of `data`, or raises OSError with some prefix of it written."""
        fd = self.fd if self.fd >= 0 else self.open()
        written = os.pwrite(fd, data, position)
        view = memoryview(data)
        while written < view.nbytes:
            written += os.pwrite(fd, view[written:], position + written)

    def truncate(self, size: int) -> None:
        os.ftruncate(self.open(), size)

    def size(self) -> int:
        return os.fstat(self.open()).st_size

    def fsync(self, metadata: bool = False) -> None:
        """Makes the bytes durable (and the times too with `metadata`). An error is final: the kernel forgets the
        pages."""
        fd = self.acquire()
        try:
            (os.fsync if metadata else _fdatasync)(fd)
        finally:
            self.release()

    def start_writeback(self, position: int, size: int) -> None:
        """Asks the kernel to start writing these dirty pages out now, so that a later write or fsync has less to wait
        for."""
        call = self._system._writeback_call()
        if call is None:
            return
        fd = self.acquire()
        try:
            call(fd, position, size, _SYNC_FILE_RANGE_WRITE)
        finally:
            self.release()

    def drop_cache(self, position: int, size: int) -> None:
        """Lets the page cache forget these pages: a long catch-up read must not evict the hot tail of other logs."""
        if not hasattr(os, "posix_fadvise"):
            return
        fd = self.acquire()
        try:
            os.posix_fadvise(fd, position, size, os.POSIX_FADV_DONTNEED)
        finally:
            self.release()

    @property
    def mapped(self) -> bool:
        return self._map is not None

    def map(self) -> mmap.mmap | bytes:
        """A read-only mapping of the whole file, kept until `close()`. Close it before the file is truncated: a read
        past the new end would be SIGBUS. An empty file cannot be mapped and gives b""."""
        self.used = True
        mapping = self._map
        if mapping is not None:
            return mapping
        fd = self.open()
        if os.fstat(fd).st_size == 0:
            return b""
        mapping = self._map = mmap.mmap(fd, 0, access=mmap.ACCESS_READ)
        # The mapping has its own descriptor; ours would only double the count.
        self.fd = -1
        os.close(fd)
        return mapping

    def rename(self, path: str) -> None:
        self._system.rename(self.path, path)
        self.path = path

    def __repr__(self) -> str:
        return f"File({self.path!r}, fd={self.fd})"


class FileRange:
    """Bytes of a file for a zero-copy send. The sender pins it from plan to last byte."""

    __slots__ = ("file", "position", "size")

    def __init__(self, file: File, position: int, size: int) -> None:
        self.file = file
        self.position = position
        self.size = size

    def acquire(self) -> int:
        return self.file.acquire()

    def release(self) -> None:
        self.file.release()

    def read(self) -> bytes:
        """The bytes themselves, for TLS and for tests; shorter when the file was truncated meanwhile."""
        return self.file.pread(self.size, self.position)

    def drop_cache(self) -> None:
        self.file.drop_cache(self.position, self.size)

    def warm(self) -> None:
        """Worker: reads the bytes into the page cache. Nothing happens when the file was removed meanwhile; whoever
        needs it finds out when asking again."""
        try:
            fd = self.file.acquire()
        except FileNotFoundError:
            return
        try:
            position, end = self.position, self.position + self.size
            while position < end:
                got = len(os.pread(fd, min(1 << 20, end - position), position))
                if not got:
                    return
                position += got
        finally:
            self.file.release()

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"FileRange({self.file.path!r}, {self.position}, {self.size})"


class FileSystem(FileNames):
    """The file system. `pwrite` is the raw call for the one hot write: (fd, data, position) -> bytes written."""

    def __init__(self, open_files_max: int = 4096) -> None:
        self.open_files_max = open_files_max
        self.pwrite: Callable[[int, Any, int], int] = os.pwrite
        self._owner = threading.get_ident()
        self._guard = threading.Lock()
        self._open: deque[File] = deque()
        self._sync_file_range: Callable[[int, int, int, int], int] | None = None
        self._sync_file_range_known = False
        self._nowait: int = getattr(os, "RWF_NOWAIT", 0)

    def _writeback_call(self) -> Callable[[int, int, int, int], int] | None:
        # Loaded on first use: importing ctypes is a noticeable part of start-up.
        if not self._sync_file_range_known:
            self._sync_file_range = load_sync_file_range()
            self._sync_file_range_known = True
        return self._sync_file_range

    def own(self) -> None:
        """Makes the calling thread the owner of the descriptor pool: the thread that runs the event loop."""
        self._owner = threading.get_ident()

    # -- files

    def file(self, path: str, readonly: bool = False) -> File:
        """A handle without touching the disk; it opens itself on first use and creates the file then if need be."""
        return File(self, path, readonly)

    def open(self, path: str, create: bool = False, readonly: bool = False) -> File:
        """A handle, opened now. Without `create` a missing file is FileNotFoundError."""
        if create:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
        elif not os.path.exists(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        file = File(self, path, readonly)
        file.may_create = False
        file.open()
        return file

    def _open_file(self, file: File) -> int:
        flags = os.O_CLOEXEC | (os.O_RDONLY if file.readonly else os.O_RDWR)
        if file.may_create:
            flags |= os.O_CREAT
        try:
            fd = os.open(file.path, flags, 0o644)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or threading.get_ident() != self._owner:
                raise
            self._evict(len(self._open) // 2)
            fd = os.open(file.path, flags, 0o644)
        with self._guard:
            if file.fd >= 0:  # another thread was faster
                os.close(fd)
                return file.fd
            file.fd = fd
            file.may_create = False
            if not file.pooled:
                file.pooled = True
                self._open.append(file)
            surplus = len(self._open) - self.open_files_max
        if surplus > 0 and threading.get_ident() == self._owner:
            file.used = True
            self._evict(max(surplus, self.open_files_max // 16), keep=file)
        return fd

    def _evict(self, wanted: int, keep: File | None = None) -> None:
        """One or two turns of the clock hand; entries of files closed meanwhile are dropped on the way."""
        turns = 2 * len(self._open)
        while wanted > 0 and turns > 0:
            turns -= 1
            file = self._open.popleft()
            if file.fd < 0 and file._map is None:
                file.pooled = False
                wanted -= 1
            elif file.used or file.pinned or file is keep:
                file.used = False
                self._open.append(file)
            else:
                file.pooled = False
                file.close()
                wanted -= 1
