"""Several directories, thousands of logs: lazy loading, checkpoints, deletion, clean and unclean stops."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import pytest
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.runtime.clock import ManualClock
from pylogd.runtime.files import FileSystem
from pylogd.runtime.simulated.simulated_files import SimulatedFileSystem
from pylogd.runtime.workers import Workers
from pylogd.storage import checkpoint_file
from pylogd.storage.compaction.cleaner import LogCleaner
from pylogd.storage.directories.directory import DirectoryInUse, aside_name
from pylogd.storage.directories.log_manager import DuplicatePartition
from pylogd.storage.directories.manager_settings import ManagerSettings
from pylogd.storage.log_config import LogConfig
from support.logs import NOW_MS, append, batch, read_all
from support.managers import TOPIC_ID, manager, run, settle


def test_a_clean_stop_is_remembered_and_logs_load_when_asked_for() -> None:
    files = SimulatedFileSystem()

    async def main() -> None:
        first = manager(files, ["/d"])
        await first.recover()
        for partition in range(3):
            log = first.create("t", partition, topic_id=TOPIC_ID)
            append(log, batch(partition + 1))
            log.high_watermark = 1
        await first.close(broker_epoch=42)
        assert json.loads(files.read_bytes("/d/.kafka_cleanshutdown")) == {"version": 0, "brokerEpoch": 42}
        assert files.read_bytes(f"/d/{checkpoint_file.RECOVERY_POINT}") == b"0\n3\nt 0 1\nt 1 2\nt 2 3\n"
        assert files.read_bytes(f"/d/{checkpoint_file.HIGH_WATERMARK}") == b"0\n3\nt 0 1\nt 1 1\nt 2 1\n"
        assert files.read_bytes(f"/d/{checkpoint_file.LOG_START_OFFSET}") == b"0\n0\n"

        second = manager(files, ["/d"])
        assert not files.exists("/d/.kafka_cleanshutdown")
        await second.recover()
        assert (second.directories[0].clean, second.directories[0].stopped_broker_epoch) == (True, 42)
        assert list(second.loaded()) == []
        assert second.partitions() == [("t", 0), ("t", 1), ("t", 2)]
        log = second.get("t", 2)
        assert log is not None
        assert (log.log_end_offset, log.high_watermark, log.topic_id) == (3, 1, TOPIC_ID)
        assert len(list(second.loaded())) == 1
        assert second.get("t", 9) is None
        # Stopping without having loaded the others keeps what their checkpoints said.
        await second.close()
        assert files.read_bytes(f"/d/{checkpoint_file.RECOVERY_POINT}") == b"0\n3\nt 0 1\nt 1 2\nt 2 3\n"

    run(main)


def test_an_unclean_stop_recovers_everything(caplog: pytest.LogCaptureFixture) -> None:
    files = SimulatedFileSystem()
    caplog.set_level(logging.INFO)

    async def main() -> None:
        first = manager(files, ["/d"])
        for partition in range(5):
            append(first.create("t", partition), batch(2))
        first.abandon()
        second = manager(files, ["/d"])
        await second.recover()
        assert not second.directories[0].clean
        assert [log.log_end_offset for log in second.loaded()] == [2] * 5
        assert [log.recovery_point for log in second.loaded()] == [0] * 5  # nothing waits for the disk at a start
        assert "recovering 5 logs in /d" in caplog.text
        assert "recovered 5 logs in /d" in caplog.text
        await second.close()

    run(main)


def test_directories_fill_evenly_or_as_told(tmp_path: Path) -> None:
    files = FileSystem()
    paths = [f"{tmp_path}/a", f"{tmp_path}/b", f"{tmp_path}/c"]
    for n, path in enumerate(paths):
        files.mkdirs(path)
        (Path(path) / "meta.properties").write_text(f"version=1\ndirectory.id={'AAAAAAAAAAAAAAAAAAAAA'}{'QgwAE'[n]}\n")

    async def main() -> None:
        logs = manager(files, paths, settings=ManagerSettings(cordoned=(paths[2],)))
        for partition in range(6):
            logs.create("t", partition)
        assert [len(directory.partitions) for directory in logs.directories] == [3, 3, 0]
        target = logs.directories[2]
        assert target.id is not None
        log = logs.create("u", 0, directory_id=target.id)
        assert log.directory == f"{paths[2]}/u-0"
        assert logs.directory_of("u", 0) is target
        assert logs.directory_by_id(target.id) is target
        await logs.close()

    run(main)


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        first = manager(FileSystem(), [str(tmp_path)])
        with pytest.raises(DirectoryInUse, match="locked by a running broker"):
            manager(FileSystem(), [str(tmp_path)])
        await first.close()
        manager(FileSystem(), [str(tmp_path)]).abandon()

    run(main)


def test_a_partition_in_two_directories_is_refused() -> None:
    files = SimulatedFileSystem()
    for name in ("/a/t-0", "/b/t-0"):
        files.mkdirs(name)

    async def main() -> None:
        with pytest.raises(DuplicatePartition, match="t-0 is in /a and in /b"):
            manager(files, ["/a", "/b"])

    run(main)


def test_only_partition_directories_are_logs() -> None:
    files = SimulatedFileSystem()
    for name in (
        "t-1",
        "a-b-c-7",
        "__cluster_metadata-0",
        "remote-log-index-cache",
        "lost+found",
        "x-y",
        "t-3.0a1b-stray",
    ):
        files.mkdirs(f"/d/{name}")

    async def main() -> None:
        logs = manager(files, ["/d"])
        assert sorted(logs.partitions()) == [("a-b-c", 7), ("t", 1)]
        logs.abandon()

    run(main)


def test_deletion_renames_now_and_removes_later() -> None:
    files = SimulatedFileSystem()

    async def main() -> None:
        logs = manager(files, ["/d"], settings=ManagerSettings(file_delete_delay_ms=20))
        log = logs.create("t", 0)
        append(log, batch())
        found = log.read(0, 100, 1)
        assert found.range is not None
        found.range.acquire()
        assert logs.delete("t", 0)
        assert not logs.delete("t", 0)
        aside = [name for name in files.listdir("/d") if name.endswith("-delete")]
        assert len(aside) == 1
        assert aside[0].startswith("t-0.")
        assert logs.get("t", 0) is None
        assert len(found.range.read()) > 0
        found.range.release()
        with pytest.raises(KafkaError):
            append(log, batch())
        again = logs.create("t", 0)
        assert again.log_end_offset == 0
        await asyncio.sleep(0.05)
        assert not [name for name in files.listdir("/d") if name.endswith("-delete")]
        await logs.close()

    run(main)


def test_a_new_partition_does_not_inherit_from_a_deleted_one() -> None:
    """An old log start beyond the new end would make recovery throw the new log away."""
    files = SimulatedFileSystem()
    files.mkdirs("/d")
    files.sync_everything()

    async def main() -> None:
        logs = manager(files, ["/d"])
        log = logs.create("t", 0)
        append(log, batch(50))
        log.flush()
        log.high_watermark = 50
        log.delete_records_before(40)
        for name in (checkpoint_file.RECOVERY_POINT, checkpoint_file.LOG_START_OFFSET, checkpoint_file.HIGH_WATERMARK):
            await logs.checkpoints.write_changed(name)
        assert b"t 0 40" in files.read_bytes(f"/d/{checkpoint_file.LOG_START_OFFSET}")
        logs.delete("t", 0)
        again = logs.create("t", 0)  # before the background had its turn
        append(again, batch(3))
        again.flush()
        logs.abandon()
        logs = manager(files.after_crash(), ["/d"])
        await logs.recover()
        recovered = logs.get("t", 0)
        assert recovered is not None
        assert (recovered.log_start_offset, recovered.log_end_offset) == (0, 3)
        await logs.close()

    run(main)


def test_an_older_table_never_overtakes_a_newer_one() -> None:
    files = SimulatedFileSystem()

    async def main() -> None:
        logs = manager(files, ["/d"])
        log = logs.create("t", 0)
        for _ in range(10):
            append(log, batch())
        log.flush()
        home = logs.directories[0]
        name = checkpoint_file.RECOVERY_POINT
        late = logs.checkpoints._job(home, name, {("t", 0): 10})
        log.truncate_to(4)
        late()
        assert checkpoint_file.read_offsets(files, f"/d/{name}") == {("t", 0): 4}
        await logs.close()

    run(main)


def test_a_deletion_that_was_interrupted_is_finished() -> None:
    files = SimulatedFileSystem()
    files.mkdirs("/d/t-0.00aa-delete")
    files.open("/d/t-0.00aa-delete/00000000000000000000.log", create=True)

    async def main() -> None:
        logs = manager(files, ["/d"])
        await logs.recover()
        await asyncio.sleep(0.01)
        assert logs.partitions() == []
        assert not files.exists("/d/t-0.00aa-delete")
        await logs.close()

    run(main)


def test_strays_are_put_aside_and_kept() -> None:
    files = SimulatedFileSystem()

    async def main() -> None:
        logs = manager(files, ["/d"])
        logs.create("t", 0)
        assert logs.put_aside_stray("t", 0)
        await asyncio.sleep(0.01)
        assert [name for name in files.listdir("/d") if name.endswith("-stray")]
        await logs.close()

    run(main)


def test_long_names_are_cut() -> None:
    name = aside_name("x" * 249, 12, "0" * 32, "-delete")
    assert len(name) == 255
    assert name.endswith("-12." + "0" * 32 + "-delete")


def test_topic_ids_are_written_and_compared() -> None:
    files = SimulatedFileSystem()

    async def main() -> None:
        logs = manager(files, ["/d"])
        logs.create("t", 0, topic_id=TOPIC_ID)
        await settle()
        assert files.exists("/d/t-0/partition.metadata")
        with pytest.raises(KafkaError) as refused:
            logs.create("t", 0, topic_id=bytes(16)[:-1] + b"x")
        assert refused.value.code == ErrorCode.INCONSISTENT_TOPIC_ID
        await logs.close()
        logs = manager(files, ["/d"])
        with pytest.raises(KafkaError) as refused:
            logs.create("t", 0, topic_id=bytes(16)[:-1] + b"x")
        assert refused.value.code == ErrorCode.INCONSISTENT_TOPIC_ID
        assert logs.create("t", 0, topic_id=TOPIC_ID).topic_id == TOPIC_ID
        await logs.close()

    run(main)


def test_a_partition_with_broken_metadata_stays_closed_alone() -> None:
    files = SimulatedFileSystem()

    async def main() -> None:
        logs = manager(files, ["/d"])
        for partition in range(2):
            append(logs.create("t", partition, topic_id=TOPIC_ID), batch())
        await settle()
        logs.abandon()
        files.write_atomically("/d/t-0/partition.metadata", b"nonsense")
        logs = manager(files, ["/d"])
        await logs.recover()
        with pytest.raises(KafkaError) as refused:
            logs.get("t", 0)
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        other = logs.get("t", 1)
        assert other is not None
        assert other.log_end_offset == 1
        await logs.close()

    run(main)


# -- periodic work


def test_checkpoints_follow_the_logs() -> None:
    files = SimulatedFileSystem()
    settings = ManagerSettings(
        initial_task_delay_ms=0,
        recovery_point_checkpoint_interval_ms=5,
        log_start_offset_checkpoint_interval_ms=5,
        high_watermark_checkpoint_interval_ms=5,
    )

    async def main() -> None:
        logs = manager(files, ["/d"], settings=settings)
        log = logs.create("t", 0)
        append(log, batch(5))
        log.flush()
        log.high_watermark = 5
        log.delete_records_before(3)
        logs.start()
        for name, line in (
            (checkpoint_file.RECOVERY_POINT, b"t 0 5"),
            (checkpoint_file.LOG_START_OFFSET, b"t 0 3"),
            (checkpoint_file.HIGH_WATERMARK, b"t 0 5"),
        ):
            async with asyncio.timeout(5):
                while not files.exists(f"/d/{name}") or line not in files.read_bytes(f"/d/{name}"):
                    await asyncio.sleep(0.002)
        logs.abandon()
        again = manager(files, ["/d"])
        await again.recover()
        recovered = again.get("t", 0)
        assert recovered is not None
        assert (recovered.log_start_offset, recovered.high_watermark) == (3, 5)
        await again.close()

    run(main)


def test_retention_runs_over_all_logs_and_loads_those_that_sleep() -> None:
    files = SimulatedFileSystem()
    config = LogConfig(segment_bytes=300, retention_ms=1000, file_delete_delay_ms=0)

    async def main() -> None:
        logs = manager(files, ["/d"], config=config)
        for partition in range(3):
            log = logs.create("t", partition)
            for _ in range(10):
                append(log, batch(timestamp=NOW_MS))
            log.high_watermark = log.log_end_offset
        await logs.close()
        logs = manager(files, ["/d"], config=config)
        assert isinstance(logs.clock, ManualClock)
        logs.clock.advance(100_000)
        await logs.maintenance.check_retention()
        assert [log.log_start_offset for log in logs.loaded()] == [10, 10, 10]
        await logs.close()

    run(main)


def test_idle_producers_expire() -> None:
    files = SimulatedFileSystem()

    async def main() -> None:
        logs = manager(files, ["/d"], settings=ManagerSettings(producer_expiration_ms=1000))
        log = logs.create("t", 0)
        append(log, batch(producer_id=1, producer_epoch=0, base_sequence=0))
        assert isinstance(logs.clock, ManualClock)
        logs.clock.advance(999)
        await logs.maintenance.expire_producers()
        assert log.producers.producers
        logs.clock.advance(1)
        await logs.maintenance.expire_producers()
        assert not log.producers.producers
        await logs.close()

    run(main)


def test_a_truncation_lowers_the_recovery_point_on_disk_first() -> None:
    files = SimulatedFileSystem()

    async def main() -> None:
        logs = manager(files, ["/d"])
        log = logs.create("t", 0)
        for _ in range(10):
            append(log, batch())
        log.flush()
        log.truncate_to(4)
        assert checkpoint_file.read_offsets(files, f"/d/{checkpoint_file.RECOVERY_POINT}") == {("t", 0): 4}
        await logs.close()

    run(main)


def test_a_truncation_takes_the_compacted_part_back() -> None:
    """What a follower gets in place of what it cut was never compacted, whatever the checkpoint said before."""
    files = SimulatedFileSystem()

    async def main() -> None:
        logs = manager(files, ["/d"])
        log = logs.create("t", 0)
        for _ in range(10):
            append(log, batch())
        path = f"/d/{checkpoint_file.CLEANER_OFFSET}"
        checkpoint_file.write_offsets(files, path, {("t", 0): 8})
        cleaner = LogCleaner(logs.loaded, files, logs.clock, logs.workers)
        logs.truncation_listeners.append(cleaner.truncated)
        cleaner.start()
        for offset, kept in ((9, 8), (4, 4), (2, 2)):
            if offset == 2:
                log.truncate_fully_and_start_at(offset)
            else:
                log.truncate_to(offset)
            await settle()
            assert checkpoint_file.read_offsets(files, path) == {("t", 0): kept}
        await cleaner.close()
        await logs.close()

    run(main)


def test_config_changes_reach_the_logs_of_the_topic() -> None:
    async def main() -> None:
        logs = manager(SimulatedFileSystem(), ["/d"])
        ours, other = logs.create("t", 0), logs.create("u", 0)
        logs.update_config("t", LogConfig(retention_ms=5))
        assert (ours.config.retention_ms, other.config.retention_ms) == (5, LogConfig().retention_ms)
        logs.abandon()

    run(main)


def test_many_partitions_with_few_descriptors(tmp_path: Path) -> None:
    """The number is small for the suite's sake; the descriptors are proportionally fewer."""
    count = 120

    async def main() -> None:
        workers = Workers(asyncio.get_running_loop(), 2)
        logs = manager(FileSystem(open_files_max=16), [str(tmp_path)], workers=workers)
        for partition in range(count):
            append(logs.create("t", partition, topic_id=TOPIC_ID), batch())
        await logs.close(7)
        logs = manager(FileSystem(open_files_max=16), [str(tmp_path)], workers=workers)
        await logs.recover()
        for partition in range(count):
            log = logs.get("t", partition)
            assert log is not None
            assert append(log, batch(2)).base_offset == 1
            assert [header.base_offset for header in read_all(log)] == [0, 1]
        assert sum(log.active.file.fd >= 0 for log in logs.loaded()) <= 20
        await logs.close(8)
        workers.close()

    run(main)


# -- crashes


@pytest.mark.parametrize("seed", range(2))
def test_a_crash_at_every_step_of_opening_using_and_closing(seed: int) -> None:
    """Acknowledged means flushed: what a flush listener was told of is there after any crash, whichever step it hit."""
    from pylogd.runtime.simulated.simulated_files import Crash

    async def life(files: SimulatedFileSystem, told: dict[int, int]) -> None:
        config = LogConfig(segment_bytes=400, flush_messages=1, index_interval_bytes=100, file_delete_delay_ms=0)
        for round_ in range(2):
            logs = manager(files, ["/d"], config=config)
            await logs.recover()
            for partition in range(2):
                log = logs.create("t", partition, topic_id=TOPIC_ID)
                log.flush_listeners.append(lambda log: told.__setitem__(log.partition, log.flushed_offset))
                for _ in range(4):
                    append(log, batch(2, size=40), epoch=round_)
                    await asyncio.sleep(0)
            if round_:
                told.pop(1, None)
                logs.delete("t", 1)
            await settle()
            await logs.close(round_)

    def attempt(crash_at: int | None) -> tuple[SimulatedFileSystem, dict[int, int]]:
        files = SimulatedFileSystem(seed * 7919 + (crash_at or 0))
        files.mkdirs("/d")
        files.sync_everything()
        files.crash_at = crash_at
        told: dict[int, int] = {}
        loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(life(files, told))
        except Crash:
            pass
        finally:
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.close()
        return files, told

    files, _ = attempt(None)
    total = files.steps
    assert total > 100
    for crash_at in range(2, total + 1, 3):  # the first step made the directory
        files, told = attempt(crash_at)
        survivor = files.after_crash()

        async def look(survivor: SimulatedFileSystem = survivor, told: dict[int, int] = told) -> None:
            logs = manager(survivor, ["/d"])
            await logs.recover()
            for partition, flushed in told.items():
                log = logs.get("t", partition)
                assert log is not None
                assert log.log_end_offset >= flushed
                assert [header.base_offset for header in read_all(log)] == list(range(0, log.log_end_offset, 2))
            await logs.close()

        run(look)
