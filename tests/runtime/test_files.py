"""The pool of descriptors, pins, mappings, locks and whole-file writes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pylogd.runtime.file_lock import LockHeld
from pylogd.runtime.files import FileRange, FileSystem
from pylogd.runtime.system import raise_descriptor_limit


def open_count(files: list[object]) -> int:
    return sum(getattr(file, "fd", -1) >= 0 for file in files)


def test_few_descriptors_serve_many_files(tmp_path: Path) -> None:
    system = FileSystem(open_files_max=8)
    handles = [system.open(f"{tmp_path}/{n}", create=True) for n in range(50)]
    for n, file in enumerate(handles):
        file.pwrite(b"%d" % n, 0)
    assert open_count(list(handles)) <= 9
    assert [file.pread(10, 0) for file in handles] == [b"%d" % n for n in range(50)]


def test_a_pinned_descriptor_survives_eviction_close_and_unlink(tmp_path: Path) -> None:
    system = FileSystem(open_files_max=4)
    pinned = system.open(f"{tmp_path}/pinned", create=True)
    pinned.pwrite(b"still here", 0)
    fd = pinned.acquire()
    others = [system.open(f"{tmp_path}/{n}", create=True) for n in range(20)]
    assert open_count(list(others)) <= 5
    pinned.close()
    system.unlink(pinned.path)
    assert os.pread(fd, 100, 0) == b"still here"
    pinned.release()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_a_file_that_is_gone_is_not_created_again(tmp_path: Path) -> None:
    system = FileSystem()
    file = system.file(f"{tmp_path}/x")
    file.pwrite(b"1", 0)
    file.close()
    system.unlink(file.path)
    with pytest.raises(FileNotFoundError):
        file.pread(1, 0)
    assert not system.exists(file.path)


def test_opening_what_is_not_there(tmp_path: Path) -> None:
    system = FileSystem()
    with pytest.raises(FileNotFoundError):
        system.open(f"{tmp_path}/x")
    assert system.listdir(str(tmp_path)) == []


def test_a_mapping_sees_the_file_and_is_evictable(tmp_path: Path) -> None:
    system = FileSystem(open_files_max=4)
    file = system.open(f"{tmp_path}/index", create=True)
    assert file.map() == b""
    file.pwrite(b"0123456789", 0)
    assert file.map()[3:5] == b"34"
    assert file.mapped
    for n in range(20):
        system.open(f"{tmp_path}/{n}", create=True)
    assert not file.mapped
    assert file.map()[9:] == b"9"


def test_workers_never_evict_what_the_loop_uses(tmp_path: Path) -> None:
    system = FileSystem(open_files_max=4)
    used = system.open(f"{tmp_path}/used", create=True)
    fd = used.fd

    def open_many() -> None:
        for n in range(30):
            system.open(f"{tmp_path}/{n}", create=True)

    thread = threading.Thread(target=open_many)
    thread.start()
    thread.join()
    assert used.fd == fd


def test_a_range_reads_its_bytes_and_warms_itself(tmp_path: Path) -> None:
    system = FileSystem()
    file = system.open(f"{tmp_path}/log", create=True)
    file.pwrite(b"abcdefgh", 0)
    piece = FileRange(file, 2, 3)
    piece.warm()
    assert (piece.read(), len(piece)) == (b"cde", 3)
    assert file.pread_nowait(3, 2) == b"cde"
    piece.drop_cache()
    file.start_writeback(0, 8)
    file.close()
    system.unlink(file.path)
    piece.warm()


def test_write_atomically_replaces_whole_files(tmp_path: Path) -> None:
    system = FileSystem()
    path = f"{tmp_path}/checkpoint"
    system.write_atomically(path, b"old and long")
    system.write_atomically(path, b"new", durable=False)
    assert system.read_bytes(path) == b"new"
    assert system.listdir(str(tmp_path)) == ["checkpoint"]


def test_scan_tells_names_kinds_and_sizes(tmp_path: Path) -> None:
    system = FileSystem()
    system.mkdirs(f"{tmp_path}/b")
    system.write_atomically(f"{tmp_path}/a", b"123")
    system.set_modified_ms(f"{tmp_path}/a", 5_000)
    assert system.scan(str(tmp_path)) == [("a", False, 3, 5_000), ("b", True, 0, 0)]


def test_a_lock_excludes_this_process_and_others(tmp_path: Path) -> None:
    system = FileSystem()
    path = f"{tmp_path}/.lock"
    lock = system.lock(path)
    with pytest.raises(LockHeld):
        system.lock(path)
    # fcntl's record lock is the kind a JVM takes, so a process that only asks for that one is refused as well.
    probe = (
        "import fcntl, os, sys\n"
        "fd = os.open(sys.argv[1], os.O_RDWR)\n"
        "try:\n    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except OSError:\n    sys.exit(3)\n"
    )
    assert subprocess.run([sys.executable, "-c", probe, path], check=False).returncode == 3
    lock.release()
    assert subprocess.run([sys.executable, "-c", probe, path], check=False).returncode == 0
    system.lock(path).release()


def test_the_descriptor_limit_is_raised_once() -> None:
    limit = raise_descriptor_limit()
    assert limit >= 256
    assert raise_descriptor_limit() == limit


def test_sync_calls_reach_the_disk(tmp_path: Path) -> None:
    system = FileSystem()
    file = system.open(f"{tmp_path}/x", create=True)
    file.pwrite(b"1", 0)
    file.fsync()
    file.fsync(metadata=True)
    system.sync_dir(str(tmp_path))
    system.sync_file_system(str(tmp_path))
    assert 0 < system.free_bytes(str(tmp_path)) <= system.total_bytes(str(tmp_path))
