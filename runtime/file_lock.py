"""A lock file: one broker per log directory.

A record lock of the open file excludes a JVM broker, which takes a record lock too, and a second broker in this
process. The older kind belongs to the process, and any close of the file gives it back; it is only for systems without
the newer one.
"""

from __future__ import annotations

import errno
import os
from struct import Struct


class LockHeld(Exception):
    """Another process, or another broker in this one, holds the lock file."""


class FileLock:
    """A held lock file; `release()` gives it back."""

    __slots__ = ("_fd", "path")

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self.path = path

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def take_lock(path: str) -> FileLock:
    """Takes the lock file or raises LockHeld."""
    import fcntl

    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        if hasattr(fcntl, "F_OFD_SETLK"):
            # struct flock { short l_type, l_whence; off_t l_start, l_len; pid_t l_pid; }
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, Struct("hhqqi0q").pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        else:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        if error.errno in (errno.EAGAIN, errno.EACCES):
            raise LockHeld(path) from None
        raise
    return FileLock(fd, path)
