"""The twin keeps the promises of a disk and none beyond."""

from __future__ import annotations

import errno

import pytest
from pylogd.runtime.file_lock import LockHeld
from pylogd.runtime.simulated.simulated_files import Crash, SimulatedFileSystem


def test_synced_bytes_under_synced_names_survive_every_crash() -> None:
    for seed in range(50):
        files = SimulatedFileSystem(seed)
        files.mkdirs("/d")
        files.sync_dir("/")
        file = files.open("/d/x", create=True)
        file.pwrite(b"durable", 0)
        file.fsync()
        files.sync_dir("/d")
        file.pwrite(b" or not", 7)
        after = files.after_crash()
        data = after.read_bytes("/d/x")
        assert data[:7] == b"durable"
        assert len(data) <= 14


def test_a_name_that_was_not_synced_may_be_lost_and_may_survive() -> None:
    outcomes = set()
    for seed in range(50):
        files = SimulatedFileSystem(seed)
        file = files.open("/x", create=True)
        file.pwrite(b"1", 0)
        file.fsync()
        outcomes.add(files.after_crash().exists("/x"))
    assert outcomes == {True, False}


def test_a_last_write_may_be_whole_torn_lost_or_zeros() -> None:
    outcomes = set()
    for seed in range(200):
        files = SimulatedFileSystem(seed)
        file = files.open("/x", create=True)
        files.sync_dir("/")
        file.pwrite(b"ab", 0)
        outcomes.add(files.after_crash().read_bytes("/x"))
    assert outcomes == {b"", b"a", b"ab", b"\x00\x00"}


def test_renames_keep_their_order() -> None:
    for seed in range(50):
        files = SimulatedFileSystem(seed)
        files.open("/a", create=True)
        files.sync_dir("/")
        files.rename("/a", "/b")
        files.rename("/b", "/c")
        assert len(files.after_crash().listdir("/")) == 1


def test_nothing_works_after_the_crash() -> None:
    files = SimulatedFileSystem()
    file = files.open("/x", create=True)
    files.crash_at = files.steps + 1
    with pytest.raises(Crash):
        file.pwrite(b"1", 0)
    with pytest.raises(Crash):
        file.pread(1, 0)
    with pytest.raises(Crash):
        files.exists("/x")


def test_a_full_disk_takes_what_fits() -> None:
    files = SimulatedFileSystem()
    files.capacity_bytes = 5
    file = files.open("/x", create=True)
    with pytest.raises(OSError, match="No space left"):
        file.pwrite(b"12345678", 0)
    assert file.size() == 5
    file.truncate(0)
    file.pwrite(b"123", 0)
    assert files.free_bytes("/") == 2


def test_injected_faults() -> None:
    files = SimulatedFileSystem()
    file = files.open("/x", create=True)
    files.faults["fsync"] = errno.EIO
    with pytest.raises(OSError, match="Input/output error"):
        file.fsync()


def test_locks_and_directories() -> None:
    files = SimulatedFileSystem()
    files.mkdirs("/a/b")
    lock = files.lock("/a/.lock")
    with pytest.raises(LockHeld):
        files.lock("/a/.lock")
    lock.release()
    files.lock("/a/.lock")
    files.rename("/a/b", "/a/c")
    assert files.listdir("/a") == [".lock", "c"]
    with pytest.raises(OSError, match="not empty"):
        files.rmdir("/a")
    files.rmdir("/a/c")
    assert not files.exists("/a/c")
