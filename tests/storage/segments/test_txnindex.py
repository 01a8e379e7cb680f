from __future__ import annotations

import struct
from pathlib import Path

import pytest
from pylogd.runtime.files import FileSystem
from pylogd.storage.segments.txnindex import AbortedTxn, CorruptTxnIndex, TransactionIndex

TXNS = [AbortedTxn(7, 0, 10, 11), AbortedTxn(8, 5, 15, 13), AbortedTxn(9, 18, 35, 25), AbortedTxn(7, 32, 50, 40)]


@pytest.fixture
def index(tmp_path: Path) -> TransactionIndex:
    index = TransactionIndex(FileSystem(), str(tmp_path / "00000000000000000000.txnindex"), 0, new=True)
    for txn in TXNS:
        index.append(txn)
    return index


def test_the_bytes_are_kafkas(index: TransactionIndex) -> None:
    data = FileSystem().read_bytes(index.path)
    assert data == b"".join(struct.pack(">hqqqq", 0, *txn) for txn in TXNS)
    again = TransactionIndex(FileSystem(), index.path, 0)
    assert again.entries() == TXNS


def test_the_file_exists_only_when_needed(tmp_path: Path) -> None:
    index = TransactionIndex(FileSystem(), str(tmp_path / "x.txnindex"), 0)
    assert index.empty
    index.reset()
    index.truncate_to(0)
    index.sync()
    index.rename(str(tmp_path / "y.txnindex"))
    assert not index.exists()
    index.append(TXNS[0])
    assert index.path.endswith("y.txnindex")
    assert index.exists()


@pytest.mark.parametrize(
    ("start", "end", "found", "complete"),
    [
        (0, 100, [0, 1, 2, 3], False),
        (0, 32, [0, 1, 2], True),
        (0, 35, [0, 1, 2, 3], True),
        (10, 35, [0, 1, 2, 3], True),
        (11, 35, [1, 2, 3], True),
        (20, 41, [2, 3], False),
        (26, 31, [2], True),
        (51, 60, [], False),
        (0, 0, [], True),
    ],
)
def test_collect(index: TransactionIndex, start: int, end: int, found: list[int], complete: bool) -> None:
    assert index.collect(start, end) == ([TXNS[n] for n in found], complete)


def test_truncation_and_order(index: TransactionIndex) -> None:
    index.truncate_to(51)
    assert index.entries() == TXNS
    index.truncate_to(35)
    assert index.entries() == TXNS[:2]
    assert TransactionIndex(FileSystem(), index.path, 0).entries() == TXNS[:2]
    with pytest.raises(ValueError, match="not above"):
        index.append(AbortedTxn(1, 0, 15, 16))
    index.append(TXNS[3])
    assert TransactionIndex(FileSystem(), index.path, 0).entries() == [*TXNS[:2], TXNS[3]]


def test_a_torn_entry_is_not_read(index: TransactionIndex) -> None:
    data = FileSystem().read_bytes(index.path)
    Path(index.path).write_bytes(data[:-3])
    again = TransactionIndex(FileSystem(), index.path, 0)
    assert again.entries() == TXNS[:-1]
    again.append(AbortedTxn(1, 40, 60, 61))
    assert TransactionIndex(FileSystem(), index.path, 0).entries() == [*TXNS[:-1], AbortedTxn(1, 40, 60, 61)]


def test_sanity_check(index: TransactionIndex) -> None:
    index.sanity_check()
    with pytest.raises(CorruptTxnIndex):
        TransactionIndex(FileSystem(), index.path, 11).sanity_check()
    Path(index.path).write_bytes(struct.pack(">hqqqq", 3, 1, 2, 3, 4))
    with pytest.raises(CorruptTxnIndex):
        TransactionIndex(FileSystem(), index.path, 0).entries()
