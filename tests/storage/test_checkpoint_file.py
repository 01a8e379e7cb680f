from __future__ import annotations

from pathlib import Path

import pytest
from pylogd.runtime.files import FileSystem
from pylogd.storage import checkpoint_file
from pylogd.storage.checkpoint_file import CheckpointError


def test_the_bytes_are_kafkas(tmp_path: Path) -> None:
    path = str(tmp_path / "recovery-point-offset-checkpoint")
    files = FileSystem()
    checkpoint_file.write_offsets(files, path, {("a", 0): 5, ("b.c-d", 12): 1 << 40})
    assert files.read_bytes(path) == b"0\n2\na 0 5\nb.c-d 12 1099511627776\n"
    assert checkpoint_file.read_offsets(files, path) == {("a", 0): 5, ("b.c-d", 12): 1 << 40}
    checkpoint_file.write_offsets(files, path, {})
    assert files.read_bytes(path) == b"0\n0\n"
    assert checkpoint_file.read_offsets(files, path) == {}
    assert files.listdir(str(tmp_path)) == ["recovery-point-offset-checkpoint"]


@pytest.mark.parametrize("data", [b"", b"0\n", b"0\n0\n"])
def test_empty_and_missing_tables(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x"
    assert checkpoint_file.read_offsets(FileSystem(), str(path)) == {}
    path.write_bytes(data)
    assert checkpoint_file.read_offsets(FileSystem(), str(path)) == {}


def test_blanks_may_be_many(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"0\n1\na  0 \t 7\n")
    assert checkpoint_file.read_offsets(FileSystem(), str(path)) == {("a", 0): 7}


@pytest.mark.parametrize(
    "data",
    [
        b"1\n0\n",
        b"1\n",
        b"0\n2\na 0 5\n",
        b"0\n0\na 0 5\n",
        b"0\n1\na 0\n",
        b"0\n1\na 0 x\n",
        b"0\nx\na 0 5\n",
        b"\xff\xfe",
    ],
)
def test_anything_else_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=str(path)):
        checkpoint_file.read_offsets(FileSystem(), str(path))
