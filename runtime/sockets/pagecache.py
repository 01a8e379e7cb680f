"""What the kernel's page cache holds, so that the event loop never sleeps on a disk.

`resident(fd, position, size)` answers from `cachestat(2)` (Linux 6.5+, a microsecond or a few), else from `mincore(2)`
on a short-lived mapping (a probe only: nothing is ever read through it, so a truncated file cannot raise SIGBUS). Where
neither exists it answers None ("unknown") and the caller takes the worker thread.

`load` reads a range into the cache and is called from a worker; `drop` lets clean pages of a range go again, so that a
reader catching up through old data does not push the hot tail of other logs out.
"""

from __future__ import annotations

import errno
import mmap
import os
import sys
from collections.abc import Callable
from typing import Any

PAGE = mmap.PAGESIZE
_LOAD_CHUNK = 1 << 18

# The same number on every Linux architecture.
_SYS_CACHESTAT = 451


class PageCache:
    """One per event loop: it reuses its argument buffers, so it must not be shared between threads."""

    def __init__(self) -> None:
        # Set on first use: importing ctypes is a noticeable part of start-up.
        self._method = ""
        self._libc: Any = None
        self._call: Callable[..., int]
        #: struct cachestat_range { u64 off, len; }
        self._span: Any = None
        #: struct cachestat { u64 nr_cache, nr_dirty, nr_writeback, nr_evicted, nr_recently_evicted; }
        self._stat: Any = None
        self._arguments: tuple[Any, ...] = ()

    @property
    def method(self) -> str:
        """Which question the kernel answers here: "cachestat", "mincore" or "none"."""
        if not self._method:
            self._method = self._find_method()
        return self._method

    def resident(self, fd: int, position: int, size: int) -> bool | None:
        """True when every page of the range is in memory, False when some page is not, None when nobody can tell."""
        if size <= 0:
            return True
        method = self._method or self.method
        if method == "cachestat":
            span = self._span
            span[0] = position
            span[1] = size
            number, span_pointer, stat_pointer, flags = self._arguments
            if self._call(number, fd, span_pointer, stat_pointer, flags) == 0:
                pages: int = self._stat[0]
                return pages >= (position + size - 1) // PAGE - position // PAGE + 1
            # Some file systems (hugetlbfs) refuse the question.
            return self._mincore(fd, position, size)
        if method == "mincore":
            return self._mincore(fd, position, size)
        return None

    def _find_method(self) -> str:
        if not sys.platform.startswith("linux"):
            return "none"
        import ctypes

        try:
            libc = ctypes.CDLL(None, use_errno=True)
            libc.syscall.restype = ctypes.c_long
            libc.mmap.restype = ctypes.c_void_p
            libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
            libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
            libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
        except (OSError, AttributeError):
            return "none"
        self._libc = libc
        self._call = libc.syscall
        self._span = (ctypes.c_uint64 * 2)(0, PAGE)
        self._stat = (ctypes.c_uint64 * 5)()
        self._arguments = (
            ctypes.c_long(_SYS_CACHESTAT),
            ctypes.byref(self._span),
            ctypes.byref(self._stat),
            ctypes.c_uint(0),
        )
        # A descriptor that cannot be open tells a known system call from an unknown one (ENOSYS, or a sandbox's EPERM).
        number, span, stat, flags = self._arguments
        if self._call(number, ctypes.c_uint(0xFFFFFFF), span, stat, flags) == -1 and ctypes.get_errno() == errno.EBADF:
            return "cachestat"
        return "mincore"

    def _mincore(self, fd: int, position: int, size: int) -> bool | None:
        libc = self._libc
        start = position - position % PAGE
        length = position + size - start
        address = libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, fd, start)
        if address is None or address + 1 == 1 << (8 * tuple.__itemsize__):  # MAP_FAILED is (void *) -1
            return None
        try:
            vector = bytearray((length + PAGE - 1) // PAGE)
            import ctypes

            if libc.mincore(address, length, (ctypes.c_ubyte * len(vector)).from_buffer(vector)) != 0:
                return None
            return all(byte & 1 for byte in vector)
        finally:
            libc.munmap(address, length)


def load(fd: int, position: int, size: int, ahead: int = 0) -> int:
    """Read the range into memory (a worker's job) and ask for `ahead` more bytes. Returns the bytes present."""
    if ahead > 0 and hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, position + size, ahead, os.POSIX_FADV_WILLNEED)
    done = 0
    while done < size:
        got = len(os.pread(fd, min(_LOAD_CHUNK, size - done), position + done))
        if got == 0:
            break
        done += got
    return done


def drop(fd: int, position: int, size: int) -> None:
    """Let the clean pages of the range go. Advice only: dirty pages and pages still being sent stay."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, position, size, os.POSIX_FADV_DONTNEED)
