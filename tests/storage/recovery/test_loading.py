"""Opening what is on disk: clean and unclean stops, torn tails, lost indexes, interrupted swaps."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pylogd.protocol import uuids
from pylogd.protocol.errors import ErrorCode, KafkaError
from pylogd.storage import partition_metadata
from pylogd.storage.log.log import Log
from pylogd.storage.log_config import LogConfig
from pylogd.storage.recovery.loading import InconsistentTopicId, open_log
from pylogd.storage.segments.segment import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX
from pylogd.storage.validation import Origin
from support.logs import append, batch, check_indexes, environment, marker, new_log, read_all, stored

SMALL = {"segment_bytes": 600, "index_interval_bytes": 100}


def filled(tmp_path: Path, count: int = 30, **config: int) -> Log:
    log = new_log(tmp_path, **{**SMALL, **config})
    for n in range(count):
        append(log, batch(2), epoch=n // 10)
    return log


def reopen(tmp_path: Path, *, clean: bool = False, recovery_point: int = 0, **options: int) -> Log:
    return open_log(
        environment(),
        f"{tmp_path}/t-0",
        "t",
        0,
        LogConfig(**SMALL),
        clean=clean,
        recovery_point=recovery_point,
        **options,
    )


def offsets(log: Log) -> list[int]:
    return [header.base_offset for header in read_all(log)]


def test_a_clean_stop_and_start(tmp_path: Path) -> None:
    before = filled(tmp_path)
    append(before, batch(1, producer_id=8, producer_epoch=2, base_sequence=0), epoch=2)
    before.close()
    after = reopen(tmp_path, clean=True)
    assert (after.log_start_offset, after.log_end_offset, after.recovery_point) == (0, 61, 61)
    assert offsets(after) == list(range(0, 61, 2))
    assert after.epochs.entries() == [(0, 0), (1, 20), (2, 40)]
    assert after.producers.producers[8].producer_epoch == 2
    check_indexes(after)
    assert append(after, batch(1), epoch=3).base_offset == 61


def test_an_unclean_stop_scans_and_rebuilds(tmp_path: Path) -> None:
    before = filled(tmp_path)
    append(before, batch(1, producer_id=8, producer_epoch=2, base_sequence=0), epoch=2)
    before.close_handles()
    after = reopen(tmp_path)
    assert after.log_end_offset == 61
    assert after.producers.producers[8].last_sequence == 0
    assert after.epochs.entries() == [(0, 0), (1, 20), (2, 40)]
    check_indexes(after)
    assert sum(segment.offset_index.entries for segment in after.segments) > 5


def test_only_segments_from_the_recovery_point_on_are_scanned(tmp_path: Path) -> None:
    before = filled(tmp_path)
    bases = before.segments.base_offsets
    before.close()
    # A flipped byte in the first segment is found only by those who look.
    with (tmp_path / "t-0" / f"{0:020d}.log").open("r+b") as file:
        file.seek(70)
        file.write(b"\xff")
    assert reopen(tmp_path, recovery_point=bases[2]).log_end_offset == 60
    scanned: list[int] = []
    log = open_log(
        environment(),
        f"{tmp_path}/t-0",
        "t",
        0,
        LogConfig(**SMALL),
        recovery_point=bases[-2] + 1,
        progress=scanned.append,
    )
    assert scanned == [2, 1, 0]
    assert log.log_end_offset == 60
    assert reopen(tmp_path).log_end_offset == 0


@pytest.mark.parametrize("torn", [1, 30, 61, 90])
def test_a_torn_tail_is_cut_at_the_last_whole_batch(tmp_path: Path, torn: int) -> None:
    before = filled(tmp_path, 4, segment_bytes=10_000)
    before.close_handles()
    path = tmp_path / "t-0" / f"{0:020d}.log"
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(bytes(batch(3))[:torn])
    after = reopen(tmp_path)
    assert after.log_end_offset == 8
    assert path.stat().st_size == size
    append(after, batch())
    assert len(stored(after)) == 5


def test_a_table_of_epochs_that_is_ahead_of_the_log_gives_way(tmp_path: Path) -> None:
    """A follower cut its log at 44, appended in a later epoch and wrote the table; the crash left only the table."""
    before = filled(tmp_path)
    before.epochs.truncate_from_end(44)
    for epoch, start in ((5, 44), (6, 50), (7, 60)):
        before.epochs.assign(epoch, start)
    before.epochs.flush()
    before.close_handles()
    after = reopen(tmp_path, recovery_point=44)
    assert after.log_end_offset == 60
    assert after.epochs.entries() == [(0, 0), (1, 20), (2, 40)]


def test_batches_that_were_cut_off_do_not_follow_those_in_their_place(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for _ in range(4):
        append(log, batch(2), epoch=3)
    path = tmp_path / "t-0" / f"{0:020}.log"
    old = path.read_bytes()
    log.truncate_to(4)
    append(log, batch(2), epoch=5)
    log.epochs.flush()
    log.close_handles()
    new = path.read_bytes()
    assert len(old) // 4 * 3 == len(new)
    path.write_bytes(new + old[len(new) :])
    after = reopen(tmp_path, recovery_point=4)
    assert [header.partition_leader_epoch for header in read_all(after)] == [3, 3, 5]
    assert after.epochs.entries() == [(3, 0), (5, 4)]
    assert path.stat().st_size == len(new)


@pytest.mark.parametrize("garbage", [bytes(500), b"\xff" * 500, bytes(range(250))])
def test_garbage_behind_the_log_is_never_served(tmp_path: Path, garbage: bytes) -> None:
    filled(tmp_path, 4, segment_bytes=10_000).close_handles()
    with (tmp_path / "t-0" / f"{0:020d}.log").open("ab") as file:
        file.write(garbage)
    assert offsets(reopen(tmp_path)) == [0, 2, 4, 6]


def test_a_corrupt_batch_ends_the_log_and_drops_later_segments(tmp_path: Path) -> None:
    before = filled(tmp_path)
    bases = before.segments.base_offsets
    before.close_handles()
    path = tmp_path / "t-0" / f"{bases[1]:020d}.log"
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    after = reopen(tmp_path)
    assert bases[1] < after.log_end_offset < bases[2]
    assert after.segments.base_offsets == bases[:2]
    assert sorted(p.name for p in (tmp_path / "t-0").glob("*.log")) == [f"{base:020d}.log" for base in bases[:2]]
    assert after.epochs.latest <= 1
    check_indexes(after)


def test_a_missing_or_broken_index_is_rebuilt_after_a_clean_stop(tmp_path: Path) -> None:
    before = filled(tmp_path)
    bases = before.segments.base_offsets
    before.close()
    (tmp_path / "t-0" / f"{bases[0]:020d}.index").unlink()
    (tmp_path / "t-0" / f"{bases[1]:020d}.timeindex").write_bytes(b"123")
    (tmp_path / "t-0" / f"{777:020d}.index").write_bytes(b"")
    after = reopen(tmp_path, clean=True)
    assert offsets(after) == list(range(0, 60, 2))
    assert after.segments.first.offset_index.entries > 0
    assert not (tmp_path / "t-0" / f"{777:020d}.index").exists()
    check_indexes(after)


def test_a_corrupt_producer_snapshot_is_replayed(tmp_path: Path) -> None:
    log = new_log(tmp_path, **SMALL)
    for n in range(20):
        append(log, batch(2, producer_id=8, producer_epoch=0, base_sequence=2 * n))
    log.close()
    for path in (tmp_path / "t-0").glob("*.snapshot"):
        path.write_bytes(path.read_bytes()[:-3])
    assert reopen(tmp_path, clean=True).producers.producers[8].last_sequence == 39


def test_transactions_are_rebuilt(tmp_path: Path) -> None:
    log = new_log(tmp_path, **SMALL)
    for n in range(4):
        append(log, batch(2, producer_id=8, producer_epoch=0, base_sequence=4 * n, transactional=True))
        append(log, batch(2, producer_id=8, producer_epoch=0, base_sequence=4 * n + 2, transactional=True))
        append(log, marker(8, 0, commit=n % 2 == 0), origin=Origin.COORDINATOR)
    append(log, batch(2, producer_id=9, producer_epoch=0, base_sequence=0, transactional=True))
    aborted = log.aborted_transactions(0, log.log_end_offset)
    assert len(aborted) == 2
    log.close_handles()
    for path in (tmp_path / "t-0").glob("*.txnindex"):
        path.unlink()
    after = reopen(tmp_path)
    after.high_watermark = after.log_end_offset
    assert after.aborted_transactions(0, after.log_end_offset) == aborted
    assert after.last_stable_offset == 20


def test_a_log_that_ends_below_its_start_starts_again(tmp_path: Path) -> None:
    filled(tmp_path, 5).close()
    after = reopen(tmp_path, clean=True, log_start_offset=100)
    assert (after.log_start_offset, after.log_end_offset) == (100, 100)
    assert append(after, batch(), epoch=1).base_offset == 100


def test_the_start_is_never_below_the_first_segment(tmp_path: Path) -> None:
    before = filled(tmp_path)
    bases = before.segments.base_offsets
    before.close()
    for path in (tmp_path / "t-0").glob(f"{0:020d}.*"):
        path.unlink()
    after = reopen(tmp_path, clean=True)
    assert after.log_start_offset == bases[1]
    assert after.epochs.entries()[0][1] >= bases[1]


def test_rot_in_an_old_segment_is_told_to_its_readers_only(tmp_path: Path) -> None:
    before = filled(tmp_path)
    bases = before.segments.base_offsets
    before.close()
    path = tmp_path / "t-0" / f"{bases[1]:020d}.log"
    path.write_bytes(b"\xff" * path.stat().st_size)
    for snapshot in (tmp_path / "t-0").glob("*.snapshot"):
        snapshot.unlink()
    (tmp_path / "t-0" / f"{60:020d}.snapshot").write_bytes(b"broken")
    after = reopen(tmp_path, clean=True)
    assert after.log_end_offset == 60
    assert [h.base_offset for h in read_all(after, start=bases[2])] == list(range(bases[2], 60, 2))
    with pytest.raises(KafkaError) as refused:
        after.read(bases[1], 100, 60)
    assert refused.value.code == ErrorCode.CORRUPT_MESSAGE


def test_a_corrupt_end_is_recovered_even_after_a_clean_stop(tmp_path: Path) -> None:
    before = filled(tmp_path)
    before.close()
    path = tmp_path / "t-0" / f"{before.active.base_offset:020d}.log"
    with path.open("ab") as file:
        file.write(b"\xff" * 200)
    after = reopen(tmp_path, clean=True)
    assert (after.log_end_offset, path.stat().st_size) == (60, after.active.size)


# -- leftovers of deletion and compaction


def copy_with_suffix(directory: Path, base: int, suffix: str) -> None:
    for path in directory.glob(f"{base:020d}.*"):
        if path.suffix in (".log", ".index", ".timeindex"):
            shutil.copy(path, f"{path}{suffix}")


def test_deleted_files_go(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.close()
    copy_with_suffix(tmp_path / "t-0", 0, DELETED_SUFFIX)
    (tmp_path / "t-0" / "00000000000000000007-0000000001.checkpoint.deleted").write_bytes(b"")
    assert offsets(reopen(tmp_path, clean=True)) == list(range(0, 60, 2))
    left = [p.name for p in (tmp_path / "t-0").iterdir() if p.name.endswith(".deleted")]
    assert left == ["00000000000000000007-0000000001.checkpoint.deleted"]


def test_an_undecided_swap_is_forgotten(tmp_path: Path) -> None:
    log = filled(tmp_path)
    bases = log.segments.base_offsets
    log.close()
    copy_with_suffix(tmp_path / "t-0", bases[0], CLEANED_SUFFIX)
    copy_with_suffix(tmp_path / "t-0", bases[1], SWAP_SUFFIX)
    assert offsets(reopen(tmp_path, clean=True)) == list(range(0, 60, 2))
    assert not [p for p in (tmp_path / "t-0").iterdir() if p.name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX))]


def test_a_decided_swap_is_finished(tmp_path: Path) -> None:
    log = filled(tmp_path)
    bases = log.segments.base_offsets
    log.close()
    directory = tmp_path / "t-0"
    # Compaction kept only the first and last batch of the first two segments, in one new segment.
    first = (directory / f"{bases[0]:020d}.log").read_bytes()
    second = (directory / f"{bases[1]:020d}.log").read_bytes()
    size = len(batch(2))
    (directory / f"{bases[0]:020d}.log.swap").write_bytes(first[:size] + second[-size:])
    (directory / f"{bases[0]:020d}.index.swap").write_bytes(b"")
    (directory / f"{bases[0]:020d}.timeindex.swap").write_bytes(b"")
    after = reopen(tmp_path, clean=True)
    assert after.segments.base_offsets == [bases[0], *bases[2:]]
    assert offsets(after) == [0, *range(bases[2] - 2, 60, 2)]
    assert not list(directory.glob("*.swap"))


# -- partition.metadata


def test_the_topic_id_is_kept_and_compared(tmp_path: Path) -> None:
    first, second = bytes(range(16)), bytes(range(16, 32))
    log = open_log(environment(), f"{tmp_path}/t-0", "t", 0, LogConfig(), topic_id=first)
    log.close()
    text = (tmp_path / "t-0" / "partition.metadata").read_text()
    assert text == f"version: 0\ntopic_id: {uuids.to_text(first)}"
    assert reopen(tmp_path, clean=True).topic_id == first
    with pytest.raises(InconsistentTopicId):
        open_log(environment(), f"{tmp_path}/t-0", "t", 0, LogConfig(), topic_id=second)


def test_a_file_that_a_crash_left_empty_is_written_again(tmp_path: Path) -> None:
    topic_id = bytes(range(16))
    new_log(tmp_path).close()
    for left in (b"", bytes(40)):
        (tmp_path / "t-0" / "partition.metadata").write_bytes(left)
        assert reopen(tmp_path).topic_id is None
        open_log(environment(), f"{tmp_path}/t-0", "t", 0, LogConfig(), topic_id=topic_id).close()
        assert reopen(tmp_path).topic_id == topic_id


@pytest.mark.parametrize("text", ["\n", "version: 0", "version: x\ntopic_id: y", f"version: 0\ntopic_id: {'A' * 22}"])
def test_broken_metadata_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "partition.metadata").write_text(text)
    with pytest.raises(partition_metadata.MalformedMetadata, match=r"partition\.metadata"):
        partition_metadata.read(environment().files, str(tmp_path))


def test_messages_of_an_old_format_are_refused_and_not_cut(tmp_path: Path) -> None:
    """kafka-python writes the message set of format 1, as Kafka did before 0.11."""
    from kafka.record.legacy_records import LegacyRecordBatchBuilder

    builder = LegacyRecordBatchBuilder(magic=1, compression_type=0, batch_size=1 << 20)
    builder.append(0, timestamp=1, key=b"k", value=b"v")
    old = bytes(builder.build())
    before = filled(tmp_path, count=1)
    before.close()
    path = tmp_path / "t-0" / "00000000000000000000.log"
    written = path.read_bytes() + old
    path.write_bytes(written)
    with pytest.raises(OSError, match="format before 2"):
        reopen(tmp_path)
    assert path.read_bytes() == written
