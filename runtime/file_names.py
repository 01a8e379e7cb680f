"""The file system by name: directories, renames, small whole files, lock files. Nothing here keeps a file open."""

from __future__ import annotations

import os

from pylogd.runtime.file_lock import FileLock, take_lock
from pylogd.runtime.system import load_libc

Bytes = bytes | bytearray | memoryview


class FileNames:
    """Calls of the operating system. A crash may undo what they change until `sync_dir`."""

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def unlink(self, path: str) -> bool:
        """Removes the file; False when it was not there."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return False
        return True

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def mkdirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def listdir(self, path: str) -> list[str]:
        """Names in a fixed order, whatever the file system's own is."""
        return sorted(os.listdir(path))

    def scan(self, path: str) -> list[tuple[str, bool, int, int]]:
        """(name, is directory, size, modified ms) of every entry, in name order; one pass over the directory."""
        found = []
        with os.scandir(path) as entries:
            for entry in entries:
                try:
                    if entry.is_dir():
                        found.append((entry.name, True, 0, 0))
                    else:
                        stat = entry.stat()
                        found.append((entry.name, False, stat.st_size, stat.st_mtime_ns // 1_000_000))
                except FileNotFoundError:
                    continue
        found.sort()
        return found

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, ms: int) -> None:
        os.utime(path, ns=(ms * 1_000_000, ms * 1_000_000))

    def sync_dir(self, path: str) -> None:
        """Makes creations, renames and removals in the directory durable."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_file_system(self, path: str) -> None:
        """Makes everything written so far on the file system of `path` durable: one call instead of thousands of
        fsyncs. Where syncfs(2) is missing, a sync of all file systems does, which cannot report an error."""
        call = load_libc("syncfs")
        if call is None:
            os.sync()
            return
        import ctypes

        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if call(fd) != 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
        finally:
            os.close(fd)

    def free_bytes(self, path: str) -> int:
        stat = os.statvfs(path)
        return stat.f_bavail * stat.f_frsize

    def total_bytes(self, path: str) -> int:
        stat = os.statvfs(path)
        return stat.f_blocks * stat.f_frsize

    # -- small whole files

    def read_bytes(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def write_atomically(self, path: str, data: Bytes, durable: bool = True) -> None:
        """Old bytes or new bytes, never a mixture: write aside, fsync, rename, fsync the directory."""
        aside = path + ".tmp"
        fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            view = memoryview(data)
            while view.nbytes:
                view = view[os.write(fd, view) :]
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(aside, path)
        if durable:
            self.sync_dir(os.path.dirname(path) or ".")

    def lock(self, path: str) -> FileLock:
        """Takes the lock file or raises LockHeld."""
        return take_lock(path)
