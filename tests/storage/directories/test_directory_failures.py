"""Directories that fail or fill up: the others go on, and what was full has room again."""

from __future__ import annotations

import asyncio
import errno
import logging
from pathlib import Path

import pytest
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.runtime.files import FileSystem
from pylogd.runtime.simulated.simulated_files import SimulatedFileSystem
from pylogd.storage.directories.log_manager import NoDirectory
from pylogd.storage.directories.manager_settings import ManagerSettings
from pylogd.storage.log import flushing
from pylogd.storage.log_config import LogConfig
from support.logs import append, batch, read_all
from support.managers import manager, run, settle


def test_a_failing_directory_takes_only_its_own_partitions_offline() -> None:
    files = SimulatedFileSystem()
    lost: list[tuple[str, list[tuple[str, int]]]] = []

    async def main() -> None:
        logs = manager(
            files, ["/a", "/b"], on_directory_failure=lambda directory, keys: lost.append((directory.path, keys))
        )
        for partition in range(4):
            append(logs.create("t", partition), batch())
        bad = logs.get("t", 0)
        assert bad is not None
        files.faults["fsync"] = errno.EIO
        logs.flusher.request(bad)
        await settle()
        files.faults.clear()
        assert lost == [("/a", [("t", 0), ("t", 2)])]
        for partition, works in ((0, False), (1, True), (2, False), (3, True)):
            log = logs.get("t", partition)
            assert log is not None
            if works:
                append(log, batch())
                assert len(read_all(log)) == 2
            else:
                with pytest.raises(KafkaError) as refused:
                    append(log, batch())
                assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        # New partitions go where there is a disk, and the failed one gets no marker.
        assert logs.create("u", 0).directory == "/b/u-0"
        with pytest.raises(KafkaError):
            logs.delete("t", 0)
        await logs.close()
        assert files.exists("/b/.kafka_cleanshutdown")
        assert not files.exists("/a/.kafka_cleanshutdown")

    run(main)


def test_a_directory_that_cannot_be_opened_is_offline_from_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")

    async def main() -> None:
        logs = manager(FileSystem(), [f"{tmp_path}/good", f"{tmp_path}/file"])
        assert [directory.online for directory in logs.directories] == [True, False]
        assert logs.create("t", 0).directory.startswith(f"{tmp_path}/good")
        await logs.close()
        with pytest.raises(NoDirectory, match="none of the log directories"):
            manager(FileSystem(), [f"{tmp_path}/file"])

    run(main)


def test_a_full_disk_is_said_once_and_again_when_it_has_room(caplog: pytest.LogCaptureFixture) -> None:
    files = SimulatedFileSystem()
    caplog.set_level(logging.INFO)

    async def main() -> None:
        logs = manager(files, ["/d"], config=LogConfig(index_interval_bytes=0))
        log = logs.create("t", 0)
        append(log, batch(size=100))
        files.capacity_bytes = files._used_bytes() + 10
        for _ in range(3):
            with pytest.raises(KafkaError):
                append(log, batch(size=100))
        assert caplog.text.count("is full") == 1
        assert logs.directories[0].online
        files.capacity_bytes = None
        append(log, batch(size=100))
        assert caplog.text.count("has room again") == 1
        await logs.close()

    run(main)


def test_a_full_disk_defers_the_group_commit() -> None:
    files = SimulatedFileSystem()

    async def main() -> None:
        logs = manager(files, ["/d"])
        log = logs.create("t", 0)
        append(log, batch(), epoch=4)
        files.capacity_bytes = files._used_bytes()
        logs.flusher.request(log)
        await settle()
        assert (logs.directories[0].online, logs.directories[0].disk_full, log.flushed_offset) == (True, True, 0)
        files.capacity_bytes = None
        logs.flusher.request(log)
        await settle()
        assert log.flushed_offset == 1
        await logs.close()

    run(main)


def test_a_deferred_flush_comes_back_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A durable follower neither fetches nor writes before its log is flushed: nobody else would ask again."""
    monkeypatch.setattr(flushing, "FLUSH_RETRY_S", 0.01)
    files = SimulatedFileSystem()

    async def main() -> None:
        logs = manager(files, ["/d"])
        log = logs.create("t", 0)
        append(log, batch(), epoch=4)
        files.capacity_bytes = files._used_bytes()
        logs.flusher.request(log)
        await settle()
        assert log.flushed_offset == 0
        files.capacity_bytes = None
        async with asyncio.timeout(20):
            while log.flushed_offset < 1:
                await asyncio.sleep(0.01)
        await logs.close()

    run(main)


def test_the_floor_of_free_space_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    files = SimulatedFileSystem()
    caplog.set_level(logging.INFO)

    async def main() -> None:
        logs = manager(files, ["/d"], settings=ManagerSettings(disk_free_floor_bytes=1000))
        files.capacity_bytes = 500
        await logs.maintenance.watch_free_space()
        await logs.maintenance.watch_free_space()
        assert caplog.text.count("pylogd.disk.free.floor.bytes") == 1
        files.capacity_bytes = None
        await logs.maintenance.watch_free_space()
        assert caplog.text.count("above the floor again") == 1
        logs.abandon()

    run(main)
