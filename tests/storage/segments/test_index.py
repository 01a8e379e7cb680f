"""The sparse indexes beside a plain list: entries, look-ups, truncation, and Kafka's bytes."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pylogd.runtime.files import FileSystem
from pylogd.runtime.simulated.simulated_files import SimulatedFileSystem
from pylogd.storage.segments.index import OffsetIndex, TimeIndex
from pylogd.storage.segments.sparse_index import CorruptIndex

BASE = 1000
offset_entries = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5000)), max_size=60)


def build_offsets(steps: list[tuple[int, int]]) -> list[tuple[int, int]]:
    entries, offset, position = [], BASE - 1, 0
    for offset_step, position_step in steps:
        offset += offset_step
        position += position_step
        entries.append((offset, position))
    return entries


@given(offset_entries, st.integers(0, 3000), st.booleans())
def test_lookup_is_the_last_entry_at_or_below(steps: list[tuple[int, int]], target: int, closed: bool) -> None:
    entries = build_offsets(steps)
    index = OffsetIndex(SimulatedFileSystem(), "/i", BASE, 1 << 20, new=True)
    for entry in entries:
        index.append(*entry)
    if closed:
        index.deactivate()
    assert index.lookup(BASE + target) == max((p for o, p in entries if o <= BASE + target), default=0)
    assert index.floor_position(target) == max((p for _, p in entries if p <= target), default=0)
    assert index.upper_offset(target) == min((o for o, p in entries if p >= target), default=None)
    assert index.last_offset == (entries[-1][0] if entries else BASE)
    assert list(index.items()) == entries


@given(offset_entries, st.integers(-5, 3000), st.booleans())
def test_truncation_keeps_what_is_below(steps: list[tuple[int, int]], target: int, closed: bool) -> None:
    entries = build_offsets(steps)
    index = OffsetIndex(SimulatedFileSystem(), "/i", BASE, 1 << 20, new=True)
    for entry in entries:
        index.append(*entry)
    if closed:
        index.deactivate()
    else:
        index.write_out()
    index.truncate_to(BASE + target)
    kept = [entry for entry in entries if entry[0] < BASE + target]
    assert list(index.items()) == kept
    index.append(kept[-1][0] + 10 if kept else BASE + 3000, 99)
    index.close()
    assert index.entries == len(kept) + 1


@given(st.lists(st.tuples(st.integers(-20, 50), st.integers(0, 9)), max_size=60), st.integers(-10, 2000), st.booleans())
def test_time_entries_grow(steps: list[tuple[int, int]], target: int, closed: bool) -> None:
    index = TimeIndex(SimulatedFileSystem(), "/t", BASE, 1 << 20, new=True)
    entries: list[tuple[int, int]] = []
    timestamp, offset = 0, BASE
    for timestamp_step, offset_step in steps:
        timestamp += timestamp_step
        offset += offset_step
        if timestamp > (entries[-1][0] if entries else -1):
            entries.append((timestamp, offset))
        index.maybe_append(timestamp, offset if entries and entries[-1] == (timestamp, offset) else 10**6)
    if closed:
        index.deactivate()
    assert list(index.items()) == entries
    below = [entry for entry in entries if entry[0] <= target]
    assert index.lookup(target) == (below[-1] if below else (-1, BASE))
    assert index.last == (entries[-1] if entries else (-1, BASE))
    index.truncate_to(BASE + target)
    assert list(index.items()) == [entry for entry in entries if entry[1] < BASE + target]


def test_bytes_are_kafkas(tmp_path: Path) -> None:
    files = FileSystem()
    offsets = OffsetIndex(files, f"{tmp_path}/i", BASE, 1 << 20, new=True)
    times = TimeIndex(files, f"{tmp_path}/t", BASE, 1 << 20, new=True)
    for n in range(3):
        offsets.append(BASE + 7 * (n + 1), 4200 * n)
        times.maybe_append(1_700_000_000_000 + n, BASE + 7 * (n + 1))
    offsets.close()
    times.close()
    assert (tmp_path / "i").read_bytes() == b"".join(struct.pack(">ii", 7 * (n + 1), 4200 * n) for n in range(3))
    assert (tmp_path / "t").read_bytes() == b"".join(
        struct.pack(">qi", 1_700_000_000_000 + n, 7 * (n + 1)) for n in range(3)
    )
    again = OffsetIndex(files, f"{tmp_path}/i", BASE, 1 << 20)
    again.sanity_check()
    again.append(BASE + 100, 99_999)
    again.close()
    assert (tmp_path / "i").stat().st_size == 32


def test_an_index_without_entries_still_gets_its_file(tmp_path: Path) -> None:
    index = OffsetIndex(FileSystem(), f"{tmp_path}/i", 0, 1 << 20, new=True)
    assert not index.exists()
    index.close()
    assert (tmp_path / "i").read_bytes() == b""


def test_full_means_no_more_entries() -> None:
    offsets = OffsetIndex(SimulatedFileSystem(), "/i", 0, 17, new=True)
    times = TimeIndex(SimulatedFileSystem(), "/t", 0, 36, new=True)
    offsets.append(1, 10)
    times.maybe_append(1, 1)
    assert not offsets.full
    assert not times.full
    offsets.append(2, 20)
    times.maybe_append(2, 2)
    assert offsets.full
    assert times.full  # one slot stays free for the entry that closes the segment


def test_entries_out_of_order_are_refused() -> None:
    offsets = OffsetIndex(SimulatedFileSystem(), "/i", 0, 1 << 20, new=True)
    offsets.append(5, 10)
    with pytest.raises(ValueError, match="not above"):
        offsets.append(5, 20)


@pytest.mark.parametrize("data", [b"1234567", struct.pack(">ii", -1, 0), struct.pack(">iiii", 9, 9, 3, 3)])
def test_corrupt_offset_indexes_are_noticed(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "i").write_bytes(data)
    with pytest.raises(CorruptIndex):
        OffsetIndex(FileSystem(), f"{tmp_path}/i", 0, 1 << 20).sanity_check()


@pytest.mark.parametrize("data", [b"12345678901", struct.pack(">qi", 5, -1), struct.pack(">qiqi", 9, 1, 3, 2)])
def test_corrupt_time_indexes_are_noticed(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "t").write_bytes(data)
    with pytest.raises(CorruptIndex):
        TimeIndex(FileSystem(), f"{tmp_path}/t", 0, 1 << 20).sanity_check()


def test_a_large_index_is_written_as_it_grows(tmp_path: Path) -> None:
    index = OffsetIndex(FileSystem(), f"{tmp_path}/i", 0, 10 << 20, new=True)
    for n in range(1, 10_001):
        index.append(n, n * 5000)
    assert (tmp_path / "i").stat().st_size >= 8 * 8000
    index.deactivate()
    assert index.lookup(7777) == 7777 * 5000
